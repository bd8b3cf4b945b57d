//! The five algorithms, as functions of a state, a quota, a cost and the time.
//!
//! There is no clock here, no I/O, and no allocation except for the log's entries. A [`Counter`] is one key's
//! count under one rule, whatever the algorithm. It can be charged, peeked at, debited and refunded:
//!
//! - `charge` takes the cost if it fits, and reports whether it did; a denial takes nothing;
//! - `peek` answers what `charge` would, and changes nothing;
//! - `refund` gives back what was taken;
//! - `debit` takes the cost whether or not it fits.
//!
//! What was debited beyond the quota is a debt, which is paid off at the quota's pace. Until then nothing
//! remains, and nothing is admitted. So it does not matter in which order costs are charged, debited and
//! given back. The count of a window or a log is then above its limit, and leaves with the window or the
//! period. A bucket owes at most as much as it holds: no key is locked for longer than two full refills, and
//! anything beyond that is forgiven.
//!
//! All decisions are made on integers, so an announced wait is exact to the microsecond: waiting that long
//! succeeds if nobody else came, and one microsecond less fails.
//!
//! ```
//! use ratekeeper_core::algorithm::Counter;
//! use ratekeeper_core::{Quota, Timestamp};
//!
//! let quota = Quota::per_second(5).burst(10);
//! let now = Timestamp::from_secs(1_000);
//! let mut counter = Counter::new(&quota);
//! for _ in 0..10 {
//!     assert!(counter.charge(&quota, 1, now).is_admitted());
//! }
//! let denied = counter.charge(&quota, 1, now);
//! assert!(!denied.is_admitted());
//! assert_eq!(denied.retry().unwrap().after().unwrap().as_millis(), 200);
//! ```

mod ask;
mod counter;
mod decide;
pub(crate) mod gcra;
pub(crate) mod log;
mod migrate;
mod state;
pub(crate) mod window;

pub use ask::Ask;
pub(crate) use counter::Counted;
pub use counter::Counter;
pub(crate) use decide::peek_after;
pub use decide::{decide, peek};
pub(crate) use state::{Count, State};

#[cfg(test)]
mod tests;
