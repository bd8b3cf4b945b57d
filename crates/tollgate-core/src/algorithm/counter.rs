//! One key's count under one rule, whatever the algorithm, and under a quota that may change.

use super::{Used, fixed_window, leaky_bucket, sliding_log, sliding_window, token_bucket};
use crate::{Algorithm, Outcome, Quota, Receipt, Timestamp};

/// One key's count under one rule, with the quota that it was counted under.
///
/// A counter can be asked under any quota. If it is another one than before, what was used stays
/// used, up to what the new quota can hold, and comes back at the new quota's pace. So a raised limit
/// helps at once, a lowered one bites at once, and nobody is locked out for longer than the new
/// quota's [full refill](Quota::full_refill).
///
/// ```
/// use tollgate_core::algorithm::Counter;
/// use tollgate_core::{Quota, Timestamp};
///
/// let now = Timestamp::from_secs(1_000);
/// let mut counter = Counter::new(&Quota::per_minute(10));
/// assert!(counter.charge(&Quota::per_minute(10), 10, now).is_admitted());
/// assert!(!counter.charge(&Quota::per_minute(10), 1, now).is_admitted());
///
/// let raised = counter.charge(&Quota::per_minute(100), 1, now);
/// assert_eq!(raised.remaining(), 100 - 10 - 1);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    quota: Quota,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    TokenBucket(token_bucket::State),
    FixedWindow(fixed_window::State),
    SlidingWindow(sliding_window::State),
    SlidingLog(sliding_log::State),
    LeakyBucket(leaky_bucket::State),
}

impl Counter {
    /// The counter of a key that was never charged.
    #[must_use]
    pub fn new(quota: &Quota) -> Self {
        Self { quota: *quota, state: State::seed(quota, Used::default(), Timestamp::UNIX_EPOCH) }
    }

    /// The quota that the counter was counted under last.
    #[must_use]
    pub const fn quota(&self) -> &Quota {
        &self.quota
    }

    /// Takes `cost` if it fits.
    pub fn charge(&mut self, quota: &Quota, cost: u32, now: Timestamp) -> Outcome {
        if quota.max() == 0 {
            // A quota that makes no sense admits nothing, and is not worth forgetting the count for.
            return self.peek(quota, cost, now);
        }
        self.reread(quota, now);
        match &mut self.state {
            State::TokenBucket(state) => token_bucket::charge(state, quota, cost, now),
            State::FixedWindow(state) => fixed_window::charge(state, quota, cost, now),
            State::SlidingWindow(state) => sliding_window::charge(state, quota, cost, now),
            State::SlidingLog(state) => sliding_log::charge(state, quota, cost, now),
            State::LeakyBucket(state) => leaky_bucket::charge(state, quota, cost, now),
        }
    }

    /// What [`charge`](Self::charge) would say.
    #[must_use]
    pub fn peek(&self, quota: &Quota, cost: u32, now: Timestamp) -> Outcome {
        if self.quota != *quota {
            return State::reread(&self.state, &self.quota, quota, now).peek(quota, cost, now);
        }
        self.state.peek(quota, cost, now)
    }

    /// Gives back, see [`Refund`](crate::Refund).
    pub fn refund(&mut self, cost: u32, receipt: Option<Receipt>, now: Timestamp) {
        let quota = &self.quota;
        match &mut self.state {
            State::TokenBucket(state) => token_bucket::refund(state, quota, cost, receipt, now),
            State::FixedWindow(state) => fixed_window::refund(state, quota, cost, receipt, now),
            State::SlidingWindow(state) => sliding_window::refund(state, quota, cost, receipt, now),
            State::SlidingLog(state) => sliding_log::refund(state, quota, cost, receipt, now),
            State::LeakyBucket(state) => leaky_bucket::refund(state, quota, cost, receipt, now),
        }
    }

    /// When the counter is no different from that of a key that was never charged.
    #[must_use]
    pub fn expires_at(&self) -> Timestamp {
        Timestamp::from_micros(self.state.expires_at(&self.quota))
    }

    pub(crate) fn into_state(self) -> State {
        self.state
    }

    fn reread(&mut self, quota: &Quota, now: Timestamp) {
        if self.quota != *quota {
            self.state = State::reread(&self.state, &self.quota, quota, now);
            self.quota = *quota;
        }
    }
}

impl State {
    /// The state under a new quota.
    pub(crate) fn reread(&self, old: &Quota, new: &Quota, now: Timestamp) -> Self {
        let same_windows = old.algorithm() == new.algorithm() && old.period() == new.period();
        match self {
            // The counts mean the same as long as the windows do, and a log means the same always.
            Self::FixedWindow(_) | Self::SlidingWindow(_) if same_windows => self.clone(),
            Self::SlidingLog(_) if new.algorithm() == Algorithm::SlidingLog => self.clone(),
            _ => Self::seed(new, self.used(old, now), now),
        }
    }

    fn seed(quota: &Quota, used: Used, now: Timestamp) -> Self {
        let used = used.min(Used::units(u64::from(quota.max())));
        match quota.algorithm() {
            Algorithm::TokenBucket => Self::TokenBucket(token_bucket::State::seed(quota, used, now)),
            Algorithm::FixedWindow => Self::FixedWindow(fixed_window::State::seed(quota, used, now)),
            Algorithm::SlidingWindow => Self::SlidingWindow(sliding_window::State::seed(quota, used, now)),
            Algorithm::SlidingLog => Self::SlidingLog(sliding_log::State::seed(quota, used, now)),
            Algorithm::LeakyBucket => Self::LeakyBucket(leaky_bucket::State::seed(quota, used, now)),
        }
    }

    pub(crate) fn peek(&self, quota: &Quota, cost: u32, now: Timestamp) -> Outcome {
        match self {
            Self::TokenBucket(state) => token_bucket::peek(state, quota, cost, now),
            Self::FixedWindow(state) => fixed_window::peek(state, quota, cost, now),
            Self::SlidingWindow(state) => sliding_window::peek(state, quota, cost, now),
            Self::SlidingLog(state) => sliding_log::peek(state, quota, cost, now),
            Self::LeakyBucket(state) => leaky_bucket::peek(state, quota, cost, now),
        }
    }

    fn used(&self, quota: &Quota, now: Timestamp) -> Used {
        match self {
            Self::TokenBucket(state) => state.used(quota, now),
            Self::FixedWindow(state) => state.used(quota, now),
            Self::SlidingWindow(state) => state.used(quota, now),
            Self::SlidingLog(state) => state.used(quota, now),
            Self::LeakyBucket(state) => state.used(quota, now),
        }
    }

    fn expires_at(&self, quota: &Quota) -> u64 {
        match self {
            Self::TokenBucket(state) => state.expires_at(quota),
            Self::FixedWindow(state) => state.expires_at(quota),
            Self::SlidingWindow(state) => state.expires_at(quota),
            Self::SlidingLog(state) => state.expires_at(quota),
            Self::LeakyBucket(state) => state.expires_at(quota),
        }
    }
}
