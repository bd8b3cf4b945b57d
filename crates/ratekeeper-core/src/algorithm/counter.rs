//! One key's count under one rule, whatever the algorithm, and under a quota that may change.

use super::migrate::migrate;
use super::{Ask, State};
use crate::{Outcome, Quota, Receipt, Timestamp};

/// One key's count under one rule.
///
/// A counter can be asked under any quota. If it is a different one than before, what was used stays used, up
/// to what the new quota can hold, and comes back at the new quota's pace. So a raised limit helps
/// immediately, a lowered one bites immediately, and no key is locked for longer than the new quota's
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
/// The counter keeps the state of the last two quotas. A charge is decided under the quota it asks for, and
/// counted under both. So two quotas that alternate on one key admit together at most what both admit. A
/// third quota replaces the older state.
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
    pub(crate) current: Counted,
    /// The state of the quota before. Most counters have none.
    pub(crate) previous: Option<Box<Counted>>,
}

/// A state and the quota that it was counted under.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    pub(crate) quota: Quota,
    pub(crate) state: State,
}

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        self.is_under(&other.quota) && self.state == other.state
    }
}

impl Eq for Counted {}

impl Counted {
    fn is_under(&self, quota: &Quota) -> bool {
        self.quota.counts_like(quota)
    }

    fn settle(&mut self, now: Timestamp) {
        self.state.get_mut().settle(&self.quota, now);
    }

    pub(crate) fn expires_at(&self) -> u64 {
        self.state.get().expires_at(&self.quota)
    }
}

impl Counter {
    /// The counter of a key that was never charged.
    #[must_use]
    pub fn new(quota: &Quota) -> Self {
        Self { current: Counted { quota: *quota, state: State::new(quota) }, previous: None }
    }

    /// Takes a cost if it fits. An [`Ask`] also says how long the caller will wait.
    pub fn charge(&mut self, quota: &Quota, ask: impl Into<Ask>, now: Timestamp) -> Outcome {
        let ask = ask.into();
        if quota.max() == 0 {
            // An invalid quota admits nothing, and is not worth forgetting the count for.
            return self.peek(quota, ask, now);
        }
        self.settle(quota, now);
        let outcome = self.current.state.get_mut().charge(quota, ask, now);
        if outcome.is_admitted() && ask.cost > 0 {
            self.count(ask.cost, now);
        }
        outcome
    }

    /// What [`charge`](Self::charge) would answer.
    #[inline]
    #[must_use]
    pub fn peek(&self, quota: &Quota, ask: impl Into<Ask>, now: Timestamp) -> Outcome {
        let ask = ask.into();
        if self.current.is_under(quota) {
            self.current.state.get().peek(quota, ask, now)
        } else if quota.max() == 0 {
            State::new(quota).get().peek(quota, ask, now)
        } else {
            let mut counter = self.clone();
            counter.settle(quota, now);
            counter.current.state.get().peek(quota, ask, now)
        }
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
        self.settle(quota, now);
        self.current.state.get_mut().debit(quota, cost, receipt, now);
        self.count(cost, now);
    }

    /// Gives back what was taken; see [`Refund`](crate::Refund).
    pub fn refund(&mut self, cost: u32, receipt: Option<Receipt>, now: Timestamp) {
        self.settle_clock(now);
        for counted in self.each_mut() {
            counted.state.get_mut().refund(&counted.quota, cost, receipt, now);
        }
    }

    /// Brings the counter to a quota and a time, as a denied charge does.
    ///
    /// So a changed quota, or a clock that was set back, counts from the first answer that it was part of.
    pub fn settle(&mut self, quota: &Quota, now: Timestamp) {
        if quota.max() > 0 {
            self.settle_clock(now);
            self.switch_to(quota, now);
        }
    }

    /// When the counter no longer differs from that of a key that was never charged.
    #[must_use]
    pub fn expires_at(&self) -> Timestamp {
        let previous = self.previous.as_ref().map_or(0, |previous| previous.expires_at());
        Timestamp::from_micros(self.current.expires_at().max(previous))
    }

    /// Ensures that nothing counts for longer because the clock was set back.
    pub(crate) fn settle_clock(&mut self, now: Timestamp) {
        for counted in self.each_mut() {
            counted.settle(now);
        }
    }

    fn each_mut(&mut self) -> impl Iterator<Item = &mut Counted> {
        std::iter::once(&mut self.current).chain(self.previous.as_deref_mut())
    }

    /// Counts under the previous quota what was admitted under the current one.
    fn count(&mut self, cost: u32, now: Timestamp) {
        if let Some(previous) = &mut self.previous {
            previous.state.get_mut().count(&previous.quota, cost, now);
        }
    }

    /// Makes this quota the current one, and the current one the previous.
    fn switch_to(&mut self, quota: &Quota, now: Timestamp) {
        if self.expires_at() <= now {
            // The counter may have been dropped already, and that must make no difference.
            self.previous = None;
        }
        if self.current.is_under(quota) {
            return;
        }
        if let Some(previous) = self.previous.as_deref_mut().filter(|previous| previous.is_under(quota)) {
            std::mem::swap(&mut self.current, previous);
            return;
        }
        // A state that counts nothing is not worth keeping.
        while self.current.expires_at() <= now.as_micros() {
            let Some(previous) = self.previous.take() else {
                *self = Self::new(quota);
                return;
            };
            self.current = *previous;
        }
        let state = migrate(&self.current.state, &self.current.quota, quota, now);
        let replaced = std::mem::replace(&mut self.current, Counted { quota: *quota, state });
        self.previous = Some(Box::new(replaced));
    }
}
