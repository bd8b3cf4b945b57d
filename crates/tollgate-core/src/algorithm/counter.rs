//! One key's count under one rule, whatever the algorithm, and under a quota that may change.

use super::{Basis, Used, fixed_window, leaky_bucket, sliding_log, sliding_window, token_bucket};
use crate::{Algorithm, Outcome, Quota, Receipt, Timestamp};

/// One key's count under one rule.
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
    pub(super) basis: Basis,
    pub(super) state: State,
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
        Self { basis: Basis::of(quota), state: State::seed(quota, Used::default(), Timestamp::UNIX_EPOCH) }
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
    #[inline]
    #[must_use]
    pub fn peek(&self, quota: &Quota, cost: u32, now: Timestamp) -> Outcome {
        if self.basis != Basis::of(quota) {
            return self.state.reread(&self.basis, quota, now).peek(quota, cost, now);
        }
        self.state.peek(quota, cost, now)
    }

    /// Takes `cost` whether or not it fits. What was not there is owed, and is paid off at the quota's pace.
    ///
    /// ```
    /// use tollgate_core::algorithm::Counter;
    /// use tollgate_core::{Quota, Timestamp};
    ///
    /// let (quota, now) = (Quota::per_minute(100), Timestamp::from_secs(1_000));
    /// let mut counter = Counter::new(&quota);
    /// assert!(counter.charge(&quota, 90, now).is_admitted());
    /// counter.debit(&quota, 40, None, now);
    /// assert_eq!(counter.peek(&quota, 1, now).remaining(), 0);
    /// // 30 are owed, and one more is needed.
    /// let wait = counter.peek(&quota, 1, now).retry().unwrap().after().unwrap();
    /// assert_eq!(wait.as_millis(), 31 * 600);
    /// ```
    pub fn debit(&mut self, quota: &Quota, cost: u32, receipt: Option<Receipt>, now: Timestamp) {
        // A quota that makes no sense is none to count under, and nothing is nothing.
        if quota.max() == 0 || cost == 0 {
            return;
        }
        self.reread(quota, now);
        match &mut self.state {
            State::TokenBucket(state) => token_bucket::debit(state, quota, cost, receipt, now),
            State::FixedWindow(state) => fixed_window::debit(state, quota, cost, receipt, now),
            State::SlidingWindow(state) => sliding_window::debit(state, quota, cost, receipt, now),
            State::SlidingLog(state) => sliding_log::debit(state, quota, cost, receipt, now),
            State::LeakyBucket(state) => leaky_bucket::debit(state, quota, cost, receipt, now),
        }
    }

    /// Gives back, see [`Refund`](crate::Refund).
    pub fn refund(&mut self, cost: u32, receipt: Option<Receipt>, now: Timestamp) {
        let basis = &self.basis;
        match &mut self.state {
            State::TokenBucket(state) => state.refund(basis, cost, receipt, now),
            State::FixedWindow(state) => state.refund(basis, cost, receipt, now),
            State::SlidingWindow(state) => state.refund(basis, cost, receipt, now),
            State::SlidingLog(state) => state.refund(basis, cost, receipt, now),
            State::LeakyBucket(state) => state.refund(basis, cost, receipt, now),
        }
    }

    /// Brings the counter to a quota and a time, as a denied charge does: a changed quota, or a clock that was
    /// set back, counts from the first answer that it was part of.
    pub fn settle(&mut self, quota: &Quota, now: Timestamp) {
        if quota.max() == 0 {
            return;
        }
        self.reread(quota, now);
        match &mut self.state {
            State::TokenBucket(state) => state.settle(quota, now),
            State::FixedWindow(state) => state.settle(quota, now),
            State::SlidingWindow(state) => state.settle(quota, now),
            State::SlidingLog(state) => state.settle(quota, now),
            State::LeakyBucket(state) => state.settle(quota, now),
        }
    }

    /// When the counter is no different from that of a key that was never charged.
    #[must_use]
    pub fn expires_at(&self) -> Timestamp {
        Timestamp::from_micros(self.state.expires_at(&self.basis))
    }

    pub(crate) fn into_state(self) -> State {
        self.state
    }

    fn reread(&mut self, quota: &Quota, now: Timestamp) {
        let basis = Basis::of(quota);
        if self.basis != basis {
            self.state = self.state.reread(&self.basis, quota, now);
            self.basis = basis;
        }
    }
}

impl State {
    /// The state under a new quota.
    pub(crate) fn reread(&self, old: &Basis, new: &Quota, now: Timestamp) -> Self {
        if *old == Basis::of(new) {
            return self.clone();
        }
        // What has expired may have been dropped; it must not matter whether it was.
        if self.expires_at(old) <= now.as_micros() {
            return Self::seed(new, Used::default(), now);
        }
        match self {
            // The moments of a log mean the same, whatever the period. But what has left by the old one has left:
            // it may have been dropped, and it must not matter whether it was.
            Self::SlidingLog(log) if new.algorithm() == Algorithm::SlidingLog => {
                let mut log = log.clone();
                log.move_to(old.period(), now);
                Self::SlidingLog(log)
            }
            _ => Self::seed(new, self.used(old, now), now),
        }
    }

    fn seed(quota: &Quota, used: Used, now: Timestamp) -> Self {
        let used = used.at_most(quota.max());
        match quota.algorithm() {
            Algorithm::TokenBucket => Self::TokenBucket(token_bucket::State::seed(quota, used, now)),
            Algorithm::FixedWindow => Self::FixedWindow(fixed_window::State::seed(quota, used, now)),
            Algorithm::SlidingWindow => Self::SlidingWindow(sliding_window::State::seed(quota, used, now)),
            Algorithm::SlidingLog => Self::SlidingLog(sliding_log::State::seed(quota, used, now)),
            Algorithm::LeakyBucket => Self::LeakyBucket(leaky_bucket::State::seed(quota, used, now)),
        }
    }

    #[inline]
    pub(crate) fn peek(&self, quota: &Quota, cost: u32, now: Timestamp) -> Outcome {
        match self {
            Self::TokenBucket(state) => token_bucket::peek(state, quota, cost, now),
            Self::FixedWindow(state) => fixed_window::peek(state, quota, cost, now),
            Self::SlidingWindow(state) => sliding_window::peek(state, quota, cost, now),
            Self::SlidingLog(state) => sliding_log::peek(state, quota, cost, now),
            Self::LeakyBucket(state) => leaky_bucket::peek(state, quota, cost, now),
        }
    }

    fn used(&self, basis: &Basis, now: Timestamp) -> Used {
        match self {
            Self::TokenBucket(state) => state.used(basis, now),
            Self::FixedWindow(state) => state.used(basis, now),
            Self::SlidingWindow(state) => state.used(basis, now),
            Self::SlidingLog(state) => state.used(basis, now),
            Self::LeakyBucket(state) => state.used(basis, now),
        }
    }

    fn expires_at(&self, basis: &Basis) -> u64 {
        match self {
            Self::TokenBucket(state) => state.expires_at(basis),
            Self::FixedWindow(state) => state.expires_at(basis),
            Self::SlidingWindow(state) => state.expires_at(basis),
            Self::SlidingLog(state) => state.expires_at(basis),
            Self::LeakyBucket(state) => state.expires_at(basis),
        }
    }
}
