//! The five algorithms, as functions of a state, a quota, a cost and the time.
//!
//! There is no clock here, no I/O, and no allocation except for the log's entries. Each algorithm is a module
//! with a `State` and four functions:
//!
//! - `charge` takes the cost if it fits, and reports whether it did; a denial takes nothing;
//! - `peek` answers what `charge` would, and changes nothing;
//! - `refund` gives back what was taken;
//! - `debit` takes the cost whether or not it fits.
//!
//! What was debited beyond the quota is a debt, which is paid off at the quota's pace. Until then nothing
//! remains, and nothing is admitted. So it does not matter in which order costs are charged, debited and
//! given back. The count of a window or a log is then above its limit, and leaves with the window or the
//! period. A bucket owes at most as much as it holds: nobody is locked out for longer than two full refills,
//! and anything beyond that is forgiven. All debt is also forgiven when the algorithm, the rate of a bucket
//! or the period of a window changes.
//!
//! A state's default is that of a key that was never charged. All decisions are made on integers, so an
//! announced wait is exact to the microsecond: waiting that long succeeds if nobody else came, and one
//! microsecond less fails.
//!
//! A [`Counter`] is one of the five together with the quota it was counted under, for a quota that changes;
//! or several of them, while several quotas are in use at once.
//!
//! ```
//! use ratekeeper_core::algorithm::token_bucket;
//! use ratekeeper_core::{Quota, Timestamp};
//!
//! let quota = Quota::per_second(5).burst(10);
//! let now = Timestamp::from_secs(1_000);
//! let mut bucket = token_bucket::State::default();
//! for _ in 0..10 {
//!     assert!(token_bucket::charge(&mut bucket, &quota, 1, now).is_admitted());
//! }
//! let denied = token_bucket::charge(&mut bucket, &quota, 1, now);
//! assert!(!denied.is_admitted());
//! assert_eq!(denied.retry().unwrap().after().unwrap().as_millis(), 200);
//! ```

mod basis;
mod beside;
mod bucket;
mod bytes;
mod change;
pub(crate) mod counter;
pub mod fixed_window;
mod full_at;
mod guard;
pub mod leaky_bucket;
mod loosest;
mod several;
pub mod sliding_log;
pub mod sliding_window;
pub mod token_bucket;
mod used;

pub(crate) use basis::Basis;
pub use counter::Counter;
pub(crate) use full_at::FullAt;
pub(crate) use several::peek_sum;
pub use several::{decide, peek};
pub(crate) use used::{PRESSED, Used};

#[cfg(test)]
mod tests;
