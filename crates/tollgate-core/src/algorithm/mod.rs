//! The five algorithms, as functions of a state, a quota, a cost and the time.
//!
//! There is no clock here, no I/O, and no allocation but for the log's entries. Each algorithm is a
//! module with a `State` and three functions:
//!
//! - `charge` takes the cost if it fits and says so; a denial takes nothing;
//! - `peek` says what `charge` would, and changes nothing;
//! - `refund` gives back what was taken.
//!
//! A state's default is that of a key that was never charged. All arithmetic is on integers, so a
//! wait that is announced is exact to the microsecond: waiting that long succeeds if nobody else
//! came, and one microsecond less fails.
//!
//! A [`Counter`] is one of the five together with the quota it was counted under, for a quota that
//! changes.
//!
//! ```
//! use tollgate_core::algorithm::token_bucket;
//! use tollgate_core::{Quota, Timestamp};
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
mod bucket;
mod bytes;
pub(crate) mod counter;
pub mod fixed_window;
pub mod leaky_bucket;
mod several;
pub mod sliding_log;
pub mod sliding_window;
pub mod token_bucket;
mod used;

pub(crate) use basis::Basis;
pub use counter::Counter;
pub(crate) use several::peek_sum;
pub use several::{decide, peek};
pub(crate) use used::{PRESSED, Used};

#[cfg(test)]
mod tests;
