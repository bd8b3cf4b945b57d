//! What a charge asks of a counter.

use crate::Charge;

/// What a charge asks of a [`Counter`](super::Counter): a cost, and how long its caller will wait.
///
/// A plain number is a cost whose caller will not wait.
///
/// ```
/// use std::time::Duration;
///
/// use ratekeeper_core::algorithm::{Ask, Counter};
/// use ratekeeper_core::{Charge, Quota, RuleName, Timestamp};
///
/// let (quota, now) = (Quota::per_second(1), Timestamp::from_secs(1_000));
/// let mut counter = Counter::new(&quota);
/// assert!(counter.charge(&quota, 1, now).is_admitted());
/// assert!(!counter.charge(&quota, 1, now).is_admitted());
///
/// let patient = Charge::new(RuleName::new("api")?, "alice", &quota).wait_up_to(Duration::from_secs(5));
/// let reserved = counter.charge(&quota, Ask::of(&patient), now);
/// assert!(reserved.is_admitted());
/// assert_eq!(reserved.delay(), Duration::from_secs(1));
/// # Ok::<(), ratekeeper_core::RuleNameError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    pub(crate) cost: u32,
    /// How long the caller will wait, in microseconds.
    pub(crate) wait_up_to: Option<u64>,
}

impl Ask {
    /// What this charge asks.
    #[inline]
    #[must_use]
    pub fn of(charge: &Charge<'_>) -> Self {
        let wait_up_to = charge.wait_up_to.map(|wait| wait.min(Charge::MAX_WAIT).as_micros() as u64);
        Self { cost: charge.cost, wait_up_to }
    }
}

impl From<u32> for Ask {
    #[inline]
    fn from(cost: u32) -> Self {
        Self { cost, wait_up_to: None }
    }
}
