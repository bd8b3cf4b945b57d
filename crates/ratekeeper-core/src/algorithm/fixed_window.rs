//! The fixed window: a counter that restarts at each multiple of the period since the Unix epoch.
//!
//! At most the limit is admitted in each window, and up to twice as much around the edge between two.

use super::{Basis, Used};
use crate::decision::Budget;
use crate::{Outcome, Quota, Receipt, Timestamp};

/// The window that was counted last, and its count.
///
/// After the clock was set back, the window starts at that moment, and not at a multiple of the period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Where the window starts, in microseconds.
    pub(crate) start: u64,
    pub(crate) count: u32,
}

/// Counts `cost` if the window has room for it.
#[inline]
pub fn charge(state: &mut State, quota: &Quota, cost: u32, now: Timestamp) -> Outcome {
    let current = state.at(quota.period_micros(), now);
    if cost > quota.max().saturating_sub(current.count) {
        state.settle(quota, now);
        return current.outcome(quota, cost, now);
    }
    *state = State { count: current.count + cost, ..current };
    Outcome::admit(state.budget(quota, now), 0)
}

/// What [`charge`] would answer.
#[must_use]
pub fn peek(state: &State, quota: &Quota, cost: u32, now: Timestamp) -> Outcome {
    state.at(quota.period_micros(), now).outcome(quota, cost, now)
}

/// Counts `cost`, whether or not the window has room for it.
pub fn debit(state: &mut State, quota: &Quota, cost: u32, _: Option<Receipt>, now: Timestamp) {
    state.press(&Basis::of(quota), quota.max(), cost, now);
}

/// Takes `cost` off the count, if the window in which it was charged is not over.
pub fn refund(state: &mut State, quota: &Quota, cost: u32, receipt: Option<Receipt>, now: Timestamp) {
    state.refund(&Basis::of(quota), cost, receipt, now);
}

/// The start of the window that `now` is in.
const fn window(period: u64, now: Timestamp) -> u64 {
    now.as_micros() - now.as_micros() % period
}

impl State {
    /// The state as of now: a window that is over counts nothing.
    ///
    /// A window that is yet to come means that the clock was set back. Its count is kept for a full period
    /// from now, and not only to the end of the window that now is in again: otherwise it would be forgotten
    /// as soon as the clock passes the window's edge a second time. A count of zero is not kept.
    #[inline]
    fn at(self, period: u64, now: Timestamp) -> Self {
        let micros = now.as_micros();
        if self.count == 0 {
            Self { start: window(period, now), count: 0 }
        } else if self.start > micros {
            Self { start: micros, ..self }
        } else if self.end(period) > micros {
            self
        } else {
            Self { start: window(period, now), count: 0 }
        }
    }

    /// Remembers that the clock was set back.
    pub(crate) fn settle(&mut self, quota: &Quota, now: Timestamp) {
        if self.start > now.as_micros() {
            *self = self.at(quota.period_micros(), now);
        }
    }

    fn budget(self, quota: &Quota, now: Timestamp) -> Budget {
        let end = self.end(quota.period_micros()) - now.as_micros();
        let wait = if self.count == 0 { 0 } else { end };
        Budget {
            limit: quota.max(),
            remaining: quota.max().saturating_sub(self.count),
            reset_micros: wait,
            // A debit or a shrunken quota may leave the count beyond the limit. Even then something comes
            // back at the window's end.
            refill_micros: wait,
        }
    }

    fn outcome(self, quota: &Quota, cost: u32, now: Timestamp) -> Outcome {
        let budget = self.budget(quota, now);
        if cost > quota.max() {
            Outcome::never(budget)
        } else if cost <= budget.remaining {
            Outcome::admit(budget, 0)
        } else {
            Outcome::deny(budget, budget.reset_micros)
        }
    }

    pub(crate) fn seed(quota: &Quota, used: Used, now: Timestamp) -> Self {
        Self { start: window(quota.period_micros(), now), count: used.ceil() }
    }

    /// Counts what was admitted under another quota, or is taken whether or not it fits.
    pub(crate) fn press(&mut self, basis: &Basis, _: u32, cost: u32, now: Timestamp) {
        let current = self.at(basis.period(), now);
        *self = Self { count: current.count.saturating_add(cost), ..current };
    }

    /// Moves on to the current window.
    pub(crate) fn move_to(&mut self, period: u64, now: Timestamp) {
        *self = self.at(period, now);
    }

    /// Until when anything counts.
    pub(crate) fn counts_until(&self, basis: &Basis) -> u64 {
        if self.count == 0 { 0 } else { self.end(basis.period()) }
    }

    pub(crate) fn used(&self, basis: &Basis, now: Timestamp) -> Used {
        Used::units(u64::from(self.at(basis.period(), now).count))
    }

    /// How much is used, as a bucket counts, if the window before admitted all that it may in its last
    /// moment.
    pub(crate) fn used_twice(&self, basis: &Basis, limit: u32, now: Timestamp) -> Used {
        let State { start, count } = self.at(basis.period(), now);
        let left = start.saturating_add(basis.period()) - now.as_micros();
        Used::exactly(f64::from(count) + f64::from(limit) * left as f64 / basis.period() as f64)
    }

    pub(crate) fn expires_at(&self, basis: &Basis) -> u64 {
        self.end(basis.period())
    }

    pub(crate) fn refund(&mut self, basis: &Basis, cost: u32, receipt: Option<Receipt>, now: Timestamp) {
        let current = self.at(basis.period(), now);
        let counts =
            |receipt: Receipt| receipt.at().as_micros() >= current.start && !receipt.is_ahead_of(now);
        if receipt.is_none_or(counts) {
            *self = Self { count: current.count.saturating_sub(cost), ..current };
        }
    }

    const fn end(self, period: u64) -> u64 {
        self.start.saturating_add(period)
    }
}
