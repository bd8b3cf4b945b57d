//! The sliding window: two counters; the previous window's fades out as the current window advances.
//!
//! The estimate for the trailing period is previous × (1 − elapsed share) + current; a charge fits while
//! estimate + cost ≤ limit. A fraction in the estimate is rounded up, which decides the same, because limit
//! and cost are whole.

use super::{Basis, Used};
use crate::decision::Budget;
use crate::{Outcome, Quota, Receipt, Timestamp};

/// The window that was counted last, its count, and the count of the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The window's number since the Unix epoch.
    pub(crate) index: u64,
    pub(crate) previous: u32,
    pub(crate) current: u32,
}

/// Counts `cost` if the estimate has room for it.
pub fn charge(state: &mut State, quota: &Quota, cost: u32, now: Timestamp) -> Outcome {
    let view = View::new(*state, quota, now);
    let faded = view.faded();
    if cost > view.remaining(faded) {
        state.settle(quota, now);
        return view.outcome(cost);
    }
    *state = State { current: view.state.current + cost, ..view.state };
    Outcome::admit(View { state: *state, ..view }.budget(faded), 0)
}

/// What [`charge`] would answer.
#[must_use]
pub fn peek(state: &State, quota: &Quota, cost: u32, now: Timestamp) -> Outcome {
    View::new(*state, quota, now).outcome(cost)
}

/// Counts `cost`, whether or not the estimate has room for it.
pub fn debit(state: &mut State, quota: &Quota, cost: u32, _: Option<Receipt>, now: Timestamp) {
    state.press(&Basis::of(quota), quota.max(), cost, now);
}

/// Takes `cost` off the count of the window in which it was charged, if that still counts.
pub fn refund(state: &mut State, quota: &Quota, cost: u32, receipt: Option<Receipt>, now: Timestamp) {
    state.refund(&Basis::of(quota), cost, receipt, now);
}

/// The number of the window that `now` is in.
pub(crate) const fn index(period: u64, now: Timestamp) -> u64 {
    now.as_micros() / period
}

/// How much is left of the window that `now` is in; never zero.
const fn left(period: u64, now: Timestamp) -> u64 {
    period - now.as_micros() % period
}

/// The end of a window. No clock comes near the largest number. If one did, the result would be meaningless,
/// but nothing breaks.
const fn end(index: u64, period: u64) -> u64 {
    index.saturating_add(1).saturating_mul(period)
}

impl State {
    /// The state as of now: windows that are over move back by one or are dropped. A window that is yet to
    /// come means that the clock was set back. Then everything that was counted is assigned to the current
    /// window, because how far the window before it had faded is no longer known.
    fn at(self, period: u64, now: Timestamp) -> Self {
        let index = index(period, now);
        if self.index == index {
            self
        } else if self.index > index {
            Self { index, previous: 0, current: self.current.saturating_add(self.previous) }
        } else if self.index + 1 == index {
            Self { index, previous: self.current, current: 0 }
        } else {
            Self { index, previous: 0, current: 0 }
        }
    }

    /// Assigns a count from before the clock was set back to the current window, so that it fades with it.
    pub(crate) fn settle(&mut self, quota: &Quota, now: Timestamp) {
        let period = quota.period_micros();
        if self.index > index(period, now) {
            *self = self.at(period, now);
        }
    }

    pub(crate) fn seed(quota: &Quota, used: Used, now: Timestamp) -> Self {
        Self { index: index(quota.period_micros(), now), previous: 0, current: used.ceil() }
    }

    /// Counts what was admitted under another quota, or is taken whether or not it fits.
    pub(crate) fn press(&mut self, basis: &Basis, _: u32, cost: u32, now: Timestamp) {
        let current = self.at(basis.period(), now);
        *self = Self { current: current.current.saturating_add(cost), ..current };
    }

    /// Moves on to the current window.
    pub(crate) fn move_to(&mut self, period: u64, now: Timestamp) {
        *self = self.at(period, now);
    }

    /// Until when anything counts.
    pub(crate) fn counts_until(&self, basis: &Basis) -> u64 {
        match (self.previous, self.current) {
            (0, 0) => 0,
            (_, 0) => end(self.index, basis.period()),
            _ => end(self.index + 1, basis.period()),
        }
    }

    pub(crate) fn used(&self, basis: &Basis, now: Timestamp) -> Used {
        let period = basis.period();
        let state = self.at(period, now);
        let left = left(period, now);
        let faded = f64::from(state.previous) * left as f64 / period as f64;
        Used::exactly(faded + f64::from(state.current))
    }

    pub(crate) fn expires_at(&self, basis: &Basis) -> u64 {
        end(if self.current > 0 { self.index + 1 } else { self.index }, basis.period())
    }

    pub(crate) fn refund(&mut self, basis: &Basis, cost: u32, receipt: Option<Receipt>, now: Timestamp) {
        let period = basis.period();
        let mut current = self.at(period, now);
        let charged = receipt.map_or(current.index, |receipt| index(period, receipt.at()));
        if receipt.is_some_and(|receipt| receipt.is_ahead_of(now)) {
            // Nothing.
        } else if charged >= current.index {
            current.current = current.current.saturating_sub(cost);
        } else if charged + 1 == current.index {
            current.previous = current.previous.saturating_sub(cost);
        }
        *self = current;
    }
}

/// A state as of now.
#[derive(Clone, Copy)]
struct View<'a> {
    quota: &'a Quota,
    state: State,
    /// How much of the current window is left, in microseconds; never zero.
    left: u64,
}

impl<'a> View<'a> {
    fn new(state: State, quota: &'a Quota, now: Timestamp) -> Self {
        let period = quota.period_micros();
        Self { quota, state: state.at(period, now), left: left(period, now) }
    }

    /// What the previous window still counts, rounded up.
    fn faded(&self) -> u32 {
        // At most `previous`.
        mul_div_ceil(self.state.previous, self.left, self.quota.period_micros()) as u32
    }

    /// How long until the previous window counts at most `room`, if that is within this window.
    fn until_faded_to(&self, room: u32) -> u64 {
        self.left.saturating_sub(share(self.state.previous, room, self.quota.period_micros()))
    }

    /// How long until the current window, which is then the previous one, counts at most `room`.
    fn until_next_faded_to(&self, room: u32) -> u64 {
        let period = self.quota.period_micros();
        self.left.saturating_add(period - share(self.state.current, room, period))
    }

    fn remaining(&self, faded: u32) -> u32 {
        self.quota.max().saturating_sub(self.state.current.saturating_add(faded))
    }

    fn budget(&self, faded: u32) -> Budget {
        let State { previous, current, .. } = self.state;
        let limit = self.quota.max();
        Budget {
            limit,
            remaining: self.remaining(faded),
            reset_micros: match (previous, current) {
                (0, 0) => 0,
                (_, 0) => self.left,
                // As in `retry`, the quota may be invalid.
                _ => self.left.saturating_add(self.quota.period_micros()),
            },
            refill_micros: if u64::from(current) + u64::from(faded) > u64::from(limit) {
                // A debt, or a shrunken quota: something comes back once the estimate is below the limit.
                self.retry(1)
            } else if faded > 0 {
                self.until_faded_to(faded - 1)
            } else if current > 0 {
                self.until_next_faded_to(current - 1)
            } else {
                0
            },
        }
    }

    /// How long until `cost`, which is at most the limit, fits. For a cost that does not fit now.
    fn retry(&self, cost: u32) -> u64 {
        // Saturating, because a live count can be asked under an invalid quota.
        let room = self.quota.max().saturating_sub(cost);
        // Within this window only the previous one fades; it is gone at the window's end.
        match room.checked_sub(self.state.current) {
            Some(room) => self.until_faded_to(room),
            None => self.until_next_faded_to(room),
        }
    }

    fn outcome(&self, cost: u32) -> Outcome {
        let budget = self.budget(self.faded());
        if cost > self.quota.max() {
            Outcome::never(budget)
        } else if cost <= budget.remaining {
            Outcome::admit(budget, 0)
        } else {
            Outcome::deny(budget, self.retry(cost))
        }
    }
}

/// The longest remainder of a period, in microseconds, for which `count` has faded to at most `room`.
fn share(count: u32, room: u32, period: u64) -> u64 {
    if room >= count {
        return period;
    }
    match u64::from(room).checked_mul(period) {
        Some(product) => product / u64::from(count),
        None => (u128::from(room) * u128::from(period) / u128::from(count)) as u64,
    }
}

fn mul_div_ceil(count: u32, left: u64, period: u64) -> u64 {
    match u64::from(count).checked_mul(left) {
        Some(product) => product.div_ceil(period),
        None => (u128::from(count) * u128::from(left)).div_ceil(u128::from(period)) as u64,
    }
}
