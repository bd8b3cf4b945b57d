//! A counter that is asked under a different quota than before.

use super::beside::{Beside, Side};
use super::counter::State;
use super::guard::Guard;
use super::{Basis, Counter, Used, fixed_window};
use crate::decision::Budget;
use crate::{Algorithm, Outcome, Quota, Retry, Timestamp};

impl Counter {
    /// Whether it can be asked under this quota without a change.
    pub(crate) fn is_under(&self, quota: &Quota, now: Timestamp) -> bool {
        self.beside.is_none() && self.basis == Basis::of(quota) && !self.state.is_beyond(quota, now)
    }

    /// Brings the counter to a quota, and keeps beside it what was there.
    ///
    /// If nothing else has changed, it returns what was kept beside and no longer matters. A denial changes
    /// nothing, so a caller that denies puts it back. (A store may deny without asking the counter.)
    pub(super) fn bring(&mut self, quota: &Quota, now: Timestamp) -> Option<Box<Beside>> {
        if self.is_under(quota, now) {
            return None;
        }
        let mut forgotten = self.forget_the_other(now);
        let basis = Basis::of(quota);
        let own = self.basis == basis;
        match self.beside.take() {
            None if own => {
                // It was counted under a larger quota of the same rate, or by a clock that was set back.
                // These cannot be told apart, and need not be: if nobody asks under a larger quota, what is
                // kept for it is not asked either.
                if self.state.is_beyond(quota, now) {
                    forgotten = None;
                    self.put_beside(quota, self.state.clone(), None, now);
                    self.state.settle(quota, now);
                }
            }
            // Of two buckets that have the same rate, one holds more.
            Some(mut beside) if own && (beside.other.basis != basis || beside.max == quota.max()) => {
                if beside.max != quota.max() {
                    self.count_all(&mut beside, now);
                    (beside.max, beside.guard) = (quota.max(), Guard::default());
                    self.move_to(now);
                }
                self.beside = Some(beside);
            }
            Some(mut beside) if beside.other.basis == basis => {
                self.move_to(now);
                self.state.settle_clock(&self.basis.quota(beside.max), now);
                if beside.is_another(quota, now) {
                    self.count_all(&mut beside, now);
                }
                let state = beside.other.state.clone();
                self.put_beside(quota, state, Some(beside), now);
            }
            mut beside => {
                forgotten = None;
                self.move_to(now);
                if let Some(beside) = &mut beside {
                    self.state.settle_clock(&self.basis.quota(beside.max), now);
                    self.count_all(beside, now);
                }
                let state = self.under(quota, beside.as_deref(), now);
                self.put_beside(quota, state, beside, now);
            }
        }
        if let Some(loosest) = self.beside.as_mut().and_then(|beside| beside.loosest.as_mut()) {
            loosest.loosen(quota, now);
        }
        if self.set_guard(now) {
            self.move_to(now);
        }
        forgotten
    }

    /// Drops what no longer counts, where the counter changes anyway: it must not come back if the clock is
    /// set back.
    fn move_to(&mut self, now: Timestamp) {
        self.state.move_to(&self.basis, now);
    }

    /// Drops and returns the state of a quota that nobody is expected to ask under any more.
    pub(super) fn forget_the_other(&mut self, now: Timestamp) -> Option<Box<Beside>> {
        let beside = self.beside.as_mut()?;
        beside.settle_clock(&self.basis, now);
        beside.loosest.take_if(|loosest| loosest.matters_until() <= now.as_micros());
        self.beside.take_if(|beside| beside.matters_until() <= now.as_micros())
    }

    /// Ensures that nothing is kept for longer because the clock was set back.
    pub(crate) fn settle_clock(&mut self, now: Timestamp) {
        if let Some(beside) = &mut self.beside {
            beside.settle_clock(&self.basis, now);
            let quota = self.basis.quota(beside.max);
            if self.state.expires_at(&self.basis) > now.saturating_add(quota.full_refill()).as_micros() {
                self.state.settle(&quota, now);
            }
        }
    }

    /// Whether anything in the state counts. What has expired may have been dropped, and that must make no
    /// difference.
    fn counts(&self, now: Timestamp) -> bool {
        self.state.counts_until(&self.basis) > now.as_micros()
    }

    /// How much the state uses.
    pub(super) fn used(&self, now: Timestamp) -> Used {
        if self.counts(now) { self.state.used(&self.basis, now) } else { Used::default() }
    }

    /// The state under a quota that is none of those being counted.
    fn under(&self, quota: &Quota, beside: Option<&Beside>, now: Timestamp) -> State {
        let counts = self.counts(now);
        match (&self.state, beside) {
            // The moments of a log mean the same, whatever the period. But what has left by the old period
            // has left: it may have been dropped, and that must make no difference.
            (State::SlidingLog(log), None) if counts && quota.algorithm() == Algorithm::SlidingLog => {
                let mut log = log.clone();
                log.move_to(self.basis.period(), now);
                State::SlidingLog(log)
            }
            _ => {
                let own = self.used(now);
                let other = beside.map_or(Used::default(), |beside| beside.other.used(now));
                State::seed(quota, own.or_more(other), now)
            }
        }
    }

    /// Uses `state` for a quota, and keeps beside it what there was, if it may still matter. `before` is what
    /// was beside until now.
    fn put_beside(&mut self, quota: &Quota, state: State, before: Option<Box<Beside>>, now: Timestamp) {
        let basis = Basis::of(quota);
        let old = Side {
            basis: std::mem::replace(&mut self.basis, basis),
            state: std::mem::replace(&mut self.state, state),
            max: before.as_ref().map_or(0, |before| before.max),
            guard: before.as_ref().map_or(Guard::default(), |before| before.guard),
        };
        let until = old.until(now);
        let since = if old.max == 0 { now.as_micros() } else { 0 };
        let back = before.as_ref().filter(|before| before.other.basis == basis);
        let guard = match back {
            Some(before) if before.other.max == quota.max() => before.other.guard,
            _ => Guard::default(),
        };
        let came_back = back.is_some();
        let loosest = before.as_ref().and_then(|before| before.loosest.clone());
        if until > now.as_micros() || (came_back && loosest.is_some()) {
            self.beside =
                Some(Box::new(Beside { max: quota.max(), guard, other: old, loosest, until, since }));
        } else if let Some(before) = before.filter(|_| !came_back) {
            self.beside = Some(Box::new(Beside { max: quota.max(), guard, ..*before }));
        }
    }

    /// Gives a fixed window its guard, as soon as both quotas are known; returns whether it did.
    fn set_guard(&mut self, now: Timestamp) -> bool {
        let (State::FixedWindow(window), Some(beside)) = (&self.state, &mut self.beside) else {
            return false;
        };
        let due = beside.max > 0 && beside.other.max > 0 && beside.guard.is_none();
        if due {
            let (own, other) = (window.used_twice(&self.basis, beside.max, now), beside.other.used(now));
            beside.guard = Guard::seed(&self.basis, beside.max, own.or_more(other), now);
        }
        due
    }

    /// What is beside, if it has to be asked as well.
    pub(super) fn guard(&self) -> Option<&Beside> {
        self.beside.as_deref().filter(|beside| !beside.guard.is_none())
    }

    /// What a fixed window with a guard answers: a cost has to fit the window, and either the guard or the
    /// other quota.
    pub(super) fn guarded(&self, quota: &Quota, cost: u32, now: Timestamp) -> Outcome {
        let (State::FixedWindow(window), Some(beside)) = (&self.state, self.guard()) else {
            return self.state.peek(quota, cost, now);
        };
        let other = beside.other.quota();
        // After that only the window counts.
        let forgotten = beside.matters_until().saturating_sub(now.as_micros());
        let wait = |cost: u32| {
            let guarded = beside.guard.wait(&self.basis, quota.max(), cost, now);
            let others = wait_of(&beside.other.state.peek(&other, cost, now)).unwrap_or(u64::MAX);
            let own = wait_of(&fixed_window::peek(window, quota, cost, now)).unwrap_or(u64::MAX);
            own.max(guarded.min(others).min(forgotten))
        };
        let room = beside.guard.room(&self.basis, quota.max(), now);
        let room = room.max(beside.other.state.peek(&other, 1, now).remaining());
        let remaining = fixed_window::peek(window, quota, 1, now).remaining().min(room);
        let budget = Budget {
            limit: quota.max(),
            remaining,
            reset_micros: wait(quota.max()),
            refill_micros: if remaining < quota.max() { wait(remaining + 1) } else { 0 },
        };
        if cost > quota.max() {
            Outcome::never(budget)
        } else if cost <= remaining {
            Outcome::admit(budget, 0)
        } else {
            Outcome::deny(budget, wait(cost))
        }
    }
}

/// How long until a charge is admitted, if ever.
pub(super) fn wait_of(outcome: &Outcome) -> Option<u64> {
    match outcome.retry() {
        None => Some(0),
        Some(Retry::After(wait)) => Some(wait.as_micros() as u64),
        Some(_) => None,
    }
}
