//! One key's count under one rule, whatever the algorithm, and under a quota that may change.

use super::beside::Beside;
use super::{Basis, PRESSED, Used, fixed_window, leaky_bucket, sliding_log, sliding_window, token_bucket};
use crate::{Algorithm, Outcome, Quota, Receipt, Timestamp};

/// One key's count under one rule.
///
/// A counter can be asked under any quota. If it is a different one than before, what was used stays used, up
/// to what the new quota can hold, and comes back at the new quota's pace. So a raised limit helps
/// immediately, a lowered one bites immediately, and nobody is locked out for longer than the new quota's
/// [full refill](Quota::full_refill).
///
/// ```
/// use ratekeeper_core::algorithm::Counter;
/// use ratekeeper_core::{Quota, Timestamp};
///
/// let now = Timestamp::from_secs(1_000);
/// let mut counter = Counter::new(&Quota::per_minute(10));
/// assert!(counter.charge(&Quota::per_minute(10), 10, now).is_admitted());
/// assert!(!counter.charge(&Quota::per_minute(10), 1, now).is_admitted());
///
/// let raised = counter.charge(&Quota::per_minute(100), 1, now);
/// assert_eq!(raised.remaining(), 100 - 10 - 1);
/// ```
///
/// Several quotas may be in use at once, as when not everybody has learnt of a change, or when a caller's
/// tier switches back and forth. Then two of them are counted, whichever is asked. Together they admit no
/// more than the looser of them: what the larger holds, plus what comes back under the faster. Three or more
/// together admit no more than the loosest.
///
/// ```
/// use ratekeeper_core::algorithm::Counter;
/// use ratekeeper_core::{Quota, Timestamp};
///
/// let (free, pro) = (Quota::per_minute(10), Quota::per_minute(100));
/// let now = Timestamp::from_secs(1_000);
/// let mut counter = Counter::new(&pro);
/// assert!(counter.charge(&pro, 100, now).is_admitted());
/// // More was used than the smaller one can hold; the larger one has not forgotten it.
/// assert!(!counter.charge(&free, 1, now).is_admitted());
/// assert!(!counter.charge(&pro, 1, now).is_admitted());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counter {
    pub(super) basis: Basis,
    pub(crate) state: State,
    /// What is kept for another quota. Most counters have none.
    pub(super) beside: Option<Box<Beside>>,
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
        Self::of(Basis::of(quota), State::seed(quota, Used::default(), Timestamp::UNIX_EPOCH))
    }

    pub(crate) const fn of(basis: Basis, state: State) -> Self {
        Self { basis, state, beside: None }
    }

    /// Takes `cost` if it fits.
    pub fn charge(&mut self, quota: &Quota, cost: u32, now: Timestamp) -> Outcome {
        if quota.max() == 0 {
            // An invalid quota admits nothing, and is not worth forgetting the count for.
            return self.peek(quota, cost, now);
        }
        let forgotten = self.bring(quota, now);
        if self.is_limited() {
            let denied = self.limited(quota, cost, now);
            if !denied.is_admitted() {
                self.state.settle(quota, now);
                return denied;
            }
        }
        let outcome = match &mut self.state {
            State::TokenBucket(state) => token_bucket::charge(state, quota, cost, now),
            State::FixedWindow(state) => fixed_window::charge(state, quota, cost, now),
            State::SlidingWindow(state) => sliding_window::charge(state, quota, cost, now),
            State::SlidingLog(state) => sliding_log::charge(state, quota, cost, now),
            State::LeakyBucket(state) => leaky_bucket::charge(state, quota, cost, now),
        };
        if outcome.is_admitted() {
            self.press(cost, now);
        } else if forgotten.is_some() {
            self.beside = forgotten;
            return outcome;
        }
        // What remains is what the others leave.
        if self.is_limited() { self.limited(quota, 0, now).with_verdict_of(outcome) } else { outcome }
    }

    /// What [`charge`](Self::charge) would answer.
    #[inline]
    #[must_use]
    pub fn peek(&self, quota: &Quota, cost: u32, now: Timestamp) -> Outcome {
        if self.beside.is_none() && self.basis == Basis::of(quota) {
            return self.state.peek(quota, cost, now);
        }
        self.peek_changed(quota, cost, now)
    }

    #[cold]
    fn peek_changed(&self, quota: &Quota, cost: u32, now: Timestamp) -> Outcome {
        let mut counter = self.clone();
        counter.bring(quota, now);
        counter.limited(quota, cost, now)
    }

    /// Takes `cost` whether or not it fits. What was not there is owed, and is paid off at the quota's pace.
    ///
    /// ```
    /// use ratekeeper_core::algorithm::Counter;
    /// use ratekeeper_core::{Quota, Timestamp};
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
        // An invalid quota cannot be counted under, and a cost of zero changes nothing.
        if quota.max() == 0 || cost == 0 {
            return;
        }
        self.bring(quota, now);
        match &mut self.state {
            State::TokenBucket(state) => token_bucket::debit(state, quota, cost, receipt, now),
            State::FixedWindow(state) => fixed_window::debit(state, quota, cost, receipt, now),
            State::SlidingWindow(state) => sliding_window::debit(state, quota, cost, receipt, now),
            State::SlidingLog(state) => sliding_log::debit(state, quota, cost, receipt, now),
            State::LeakyBucket(state) => leaky_bucket::debit(state, quota, cost, receipt, now),
        }
        self.press(cost, now);
    }

    /// Gives back what was taken; see [`Refund`](crate::Refund).
    pub fn refund(&mut self, cost: u32, receipt: Option<Receipt>, now: Timestamp) {
        self.forget_the_other(now);
        let before = self.state.window_count(&self.basis, now);
        self.state.refund(&self.basis, cost, receipt, now);
        let struck = before - self.state.window_count(&self.basis, now);
        if let Some(beside) = &mut self.beside {
            beside.guard.give_back(&self.basis, beside.max, struck, now);
            beside.other.refund(cost, receipt, now);
            if let Some(loosest) = &mut beside.loosest {
                loosest.side.refund(cost, receipt, now);
            }
        }
    }

    /// Brings the counter to a quota and a time, as a denied charge does.
    ///
    /// So a changed quota, or a clock that was set back, counts from the first answer that it was part of.
    pub fn settle(&mut self, quota: &Quota, now: Timestamp) {
        if quota.max() == 0 {
            return;
        }
        let forgotten = self.bring(quota, now);
        self.state.settle(quota, now);
        if forgotten.is_some() {
            self.beside = forgotten;
        }
    }

    /// When the counter no longer differs from that of a key that was never charged.
    #[must_use]
    pub fn expires_at(&self) -> Timestamp {
        Timestamp::from_micros(match &self.beside {
            None => self.state.expires_at(&self.basis),
            Some(beside) => self.state.counts_until(&self.basis).max(beside.matters_until()),
        })
    }

    /// Whether two quotas are in use at once.
    pub(crate) const fn is_of_two(&self) -> bool {
        self.beside.is_some()
    }

    /// The quota that was asked last, if there are two.
    pub(crate) fn asked_last(&self) -> Option<Quota> {
        self.beside.as_ref().map(|beside| self.basis.quota(beside.max))
    }

    /// The share of the budget that is used if there are two quotas, [`PRESSED`] being all of it: the larger
    /// share. With only one quota, it is unknown how much that holds.
    pub(crate) fn pressure(&self, now: Timestamp) -> u32 {
        let Some(beside) = &self.beside else { return 0 };
        let other = &beside.other;
        // Nothing is known about an unknown quota, except that somebody needed more.
        let others = if other.max == 0 { PRESSED } else { other.used(now).pressure(other.max) };
        let all = beside.loosest.as_ref().map(|loosest| &loosest.side);
        let all = all.map_or(0, |side| side.used(now).pressure(side.max));
        self.state.used(&self.basis, now).pressure(beside.max).max(others).max(all)
    }

    /// Counts for the other quota what was admitted under the quota that was asked.
    fn press(&mut self, cost: u32, now: Timestamp) {
        if let Some(beside) = &mut self.beside {
            beside.press(&self.basis, cost, now);
        }
    }
}

impl State {
    pub(super) fn seed(quota: &Quota, used: Used, now: Timestamp) -> Self {
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

    pub(crate) fn used(&self, basis: &Basis, now: Timestamp) -> Used {
        match self {
            Self::TokenBucket(state) => state.used(basis, now),
            Self::FixedWindow(state) => state.used(basis, now),
            Self::SlidingWindow(state) => state.used(basis, now),
            Self::SlidingLog(state) => state.used(basis, now),
            Self::LeakyBucket(state) => state.used(basis, now),
        }
    }

    pub(crate) fn expires_at(&self, basis: &Basis) -> u64 {
        match self {
            Self::TokenBucket(state) => state.expires_at(basis),
            Self::FixedWindow(state) => state.expires_at(basis),
            Self::SlidingWindow(state) => state.expires_at(basis),
            Self::SlidingLog(state) => state.expires_at(basis),
            Self::LeakyBucket(state) => state.expires_at(basis),
        }
    }

    /// Drops what no longer counts.
    pub(super) fn move_to(&mut self, basis: &Basis, now: Timestamp) {
        match self {
            // A bucket has nothing that could be dropped.
            Self::TokenBucket(_) | Self::LeakyBucket(_) => {}
            Self::FixedWindow(state) => state.move_to(basis.period(), now),
            Self::SlidingWindow(state) => state.move_to(basis.period(), now),
            Self::SlidingLog(state) => state.move_to(basis.period(), now),
        }
    }

    /// Until when anything in it counts.
    pub(super) fn counts_until(&self, basis: &Basis) -> u64 {
        match self {
            Self::TokenBucket(state) => state.counts_until(basis),
            Self::FixedWindow(state) => state.counts_until(basis),
            Self::SlidingWindow(state) => state.counts_until(basis),
            Self::SlidingLog(state) => state.counts_until(basis),
            Self::LeakyBucket(state) => state.counts_until(basis),
        }
    }

    /// Counts what was admitted under another quota. `max` is how much its own holds, or zero if that is
    /// unknown.
    pub(super) fn press(&mut self, basis: &Basis, max: u32, cost: u32, now: Timestamp) {
        match self {
            Self::TokenBucket(state) => state.press(basis, max, cost, now),
            Self::FixedWindow(state) => state.press(basis, max, cost, now),
            Self::SlidingWindow(state) => state.press(basis, max, cost, now),
            Self::SlidingLog(state) => state.press(basis, max, cost, now),
            Self::LeakyBucket(state) => state.press(basis, max, cost, now),
        }
    }

    pub(super) fn refund(&mut self, basis: &Basis, cost: u32, receipt: Option<Receipt>, now: Timestamp) {
        match self {
            Self::TokenBucket(state) => state.refund(basis, cost, receipt, now),
            Self::FixedWindow(state) => state.refund(basis, cost, receipt, now),
            Self::SlidingWindow(state) => state.refund(basis, cost, receipt, now),
            Self::SlidingLog(state) => state.refund(basis, cost, receipt, now),
            Self::LeakyBucket(state) => state.refund(basis, cost, receipt, now),
        }
    }

    /// The count of a fixed window.
    pub(super) fn window_count(&self, basis: &Basis, now: Timestamp) -> u32 {
        if let Self::FixedWindow(state) = self { state.used(basis, now).ceil() } else { 0 }
    }

    pub(super) fn settle(&mut self, quota: &Quota, now: Timestamp) {
        match self {
            Self::TokenBucket(state) => state.settle(quota, now),
            Self::FixedWindow(state) => state.settle(quota, now),
            Self::SlidingWindow(state) => state.settle(quota, now),
            Self::SlidingLog(state) => state.settle(quota, now),
            Self::LeakyBucket(state) => state.settle(quota, now),
        }
    }

    /// Remembers that the clock was set back, and changes nothing else.
    pub(super) fn settle_clock(&mut self, quota: &Quota, now: Timestamp) {
        match self {
            // Settling would also drop entries that have left.
            Self::SlidingLog(state) if !state.is_ahead_of(now) => {}
            _ => self.settle(quota, now),
        }
    }

    /// Whether it is a bucket that is full only later than this quota takes at most.
    pub(crate) fn is_beyond(&self, quota: &Quota, now: Timestamp) -> bool {
        match self {
            Self::TokenBucket(token_bucket::State(full_at))
            | Self::LeakyBucket(leaky_bucket::State(full_at)) => full_at.is_beyond(quota, now),
            _ => false,
        }
    }
}
