//! Both windows: counts that restart at each multiple of the period since the Unix epoch.
//!
//! The fixed window admits at most the limit in each window, and up to twice as much around the edge between
//! two. The sliding window also keeps the count of the window before, which fades out as the current one
//! advances. The estimate for the trailing period is previous × (1 − elapsed share) + current; a charge fits
//! while estimate + cost ≤ limit. A fraction in the estimate is rounded up, which decides the same, because
//! limit and cost are whole.

use super::{Ask, Count};
use crate::decision::Budget;
use crate::{Outcome, Quota, Receipt, Timestamp};

/// The window that was counted last, and its count.
///
/// After the clock was set back, the window starts at that moment, and not at a multiple of the period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FixedWindow {
    /// Where the window starts, in microseconds.
    pub(crate) start: u64,
    pub(crate) count: u32,
}

impl FixedWindow {
    pub(super) fn seed(quota: &Quota, count: u32, now: Timestamp) -> Self {
        Self { start: now.as_micros() - now.as_micros() % quota.period_micros(), count }
    }

    /// The state as of now: a window that is over counts nothing.
    ///
    /// A window that is yet to come means that the clock was set back. Its count is kept for a full period
    /// from now, and not only to the end of the window that now is in again: otherwise it would be forgotten
    /// as soon as the clock passes the window's edge a second time. A count of zero is not kept.
    fn at(self, quota: &Quota, now: Timestamp) -> Self {
        let micros = now.as_micros();
        if self.count == 0 || self.end(quota) <= micros {
            Self::seed(quota, 0, now)
        } else {
            Self { start: self.start.min(micros), ..self }
        }
    }

    const fn end(self, quota: &Quota) -> u64 {
        self.start.saturating_add(quota.period_micros())
    }
}

impl Count for FixedWindow {
    fn peek(&self, quota: &Quota, ask: Ask, now: Timestamp) -> Outcome {
        let current = self.at(quota, now);
        let wait = if current.count == 0 { 0 } else { current.end(quota) - now.as_micros() };
        let limit = quota.max();
        // A debit may leave the count beyond the limit. Even then something comes back at the window's end.
        let remaining = limit.saturating_sub(current.count);
        let budget = Budget { limit, remaining, reset_micros: wait, refill_micros: wait };
        Outcome::of(budget, ask.cost, || wait)
    }

    fn debit(&mut self, quota: &Quota, cost: u32, _: Option<Receipt>, now: Timestamp) {
        let current = self.at(quota, now);
        *self = Self { count: current.count.saturating_add(cost), ..current };
    }

    fn count(&mut self, quota: &Quota, cost: u32, now: Timestamp) {
        let current = self.at(quota, now);
        *self = Self { count: count_up_to(quota, current.count, cost), ..current };
    }

    /// Takes `cost` off the count, if the window in which it was charged is not over.
    fn refund(&mut self, quota: &Quota, cost: u32, receipt: Option<Receipt>, now: Timestamp) {
        let current = self.at(quota, now);
        let counts =
            |receipt: Receipt| receipt.at().as_micros() >= current.start && !receipt.is_ahead_of(now);
        if receipt.is_none_or(counts) {
            *self = Self { count: current.count.saturating_sub(cost), ..current };
        }
    }

    fn settle(&mut self, quota: &Quota, now: Timestamp) {
        if self.start > now.as_micros() {
            *self = self.at(quota, now);
        }
    }

    fn cut(&mut self, quota: &Quota, now: Timestamp) {
        *self = self.at(quota, now);
        self.count = self.count.min(quota.max());
    }

    fn used(&self, quota: &Quota, now: Timestamp) -> f64 {
        f64::from(self.at(quota, now).count)
    }

    fn expires_at(&self, quota: &Quota) -> u64 {
        if self.count == 0 { 0 } else { self.end(quota) }
    }
}

/// The window that was counted last, its count, and the count of the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlidingWindow {
    /// The window's number since the Unix epoch.
    pub(crate) index: u64,
    pub(crate) previous: u32,
    pub(crate) current: u32,
}

/// The number of the window that `now` is in.
const fn index(quota: &Quota, now: Timestamp) -> u64 {
    now.as_micros() / quota.period_micros()
}

/// How much is left of the window that `now` is in; never zero.
const fn left(quota: &Quota, now: Timestamp) -> u64 {
    quota.period_micros() - now.as_micros() % quota.period_micros()
}

/// The end of a window. No clock comes near the largest number. If one did, the result would be meaningless,
/// but nothing breaks.
const fn end(index: u64, quota: &Quota) -> u64 {
    index.saturating_add(1).saturating_mul(quota.period_micros())
}

impl SlidingWindow {
    pub(super) fn seed(quota: &Quota, count: u32, now: Timestamp) -> Self {
        Self { index: index(quota, now), previous: 0, current: count }
    }

    /// The state as of now: windows that are over move back by one or are dropped. A window that is yet to
    /// come means that the clock was set back. Then everything that was counted is assigned to the current
    /// window, because how far the window before it had faded is no longer known.
    fn at(self, quota: &Quota, now: Timestamp) -> Self {
        let index = index(quota, now);
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
}

impl Count for SlidingWindow {
    fn peek(&self, quota: &Quota, ask: Ask, now: Timestamp) -> Outcome {
        let estimate = Estimate { quota, state: self.at(quota, now), left: left(quota, now) };
        Outcome::of(estimate.budget(), ask.cost, || estimate.retry(ask.cost))
    }

    fn debit(&mut self, quota: &Quota, cost: u32, _: Option<Receipt>, now: Timestamp) {
        let state = self.at(quota, now);
        *self = Self { current: state.current.saturating_add(cost), ..state };
    }

    fn count(&mut self, quota: &Quota, cost: u32, now: Timestamp) {
        let state = self.at(quota, now);
        *self = Self { current: count_up_to(quota, state.current, cost), ..state };
    }

    /// Takes `cost` off the count of the window in which it was charged, if that still counts.
    fn refund(&mut self, quota: &Quota, cost: u32, receipt: Option<Receipt>, now: Timestamp) {
        let mut state = self.at(quota, now);
        let charged = receipt.map_or(state.index, |receipt| index(quota, receipt.at()));
        if receipt.is_some_and(|receipt| receipt.is_ahead_of(now)) {
            // The clock was set back, so it is unknown whether the charge still counts.
        } else if charged >= state.index {
            state.current = state.current.saturating_sub(cost);
        } else if charged + 1 == state.index {
            state.previous = state.previous.saturating_sub(cost);
        }
        *self = state;
    }

    fn settle(&mut self, quota: &Quota, now: Timestamp) {
        if self.index > index(quota, now) {
            *self = self.at(quota, now);
        }
    }

    fn cut(&mut self, quota: &Quota, now: Timestamp) {
        let Self { index, previous, current } = self.at(quota, now);
        *self = Self { index, previous: previous.min(quota.max()), current: current.min(quota.max()) };
    }

    fn used(&self, quota: &Quota, now: Timestamp) -> f64 {
        let state = self.at(quota, now);
        let faded = f64::from(state.previous) * left(quota, now) as f64 / quota.period_micros() as f64;
        faded + f64::from(state.current)
    }

    fn expires_at(&self, quota: &Quota) -> u64 {
        match (self.previous, self.current) {
            (0, 0) => 0,
            (_, 0) => end(self.index, quota),
            _ => end(self.index + 1, quota),
        }
    }
}

/// What a sliding window counts now.
struct Estimate<'a> {
    quota: &'a Quota,
    state: SlidingWindow,
    /// How much of the current window is left, in microseconds; never zero.
    left: u64,
}

impl Estimate<'_> {
    fn budget(&self) -> Budget {
        let SlidingWindow { previous, current, .. } = self.state;
        let (limit, period) = (self.quota.max(), self.quota.period_micros());
        // At most `previous`.
        let faded = mul_div_ceil(previous, self.left, period) as u32;
        let estimate = u64::from(current) + u64::from(faded);
        Budget {
            limit,
            remaining: u64::from(limit).saturating_sub(estimate) as u32,
            reset_micros: match (previous, current) {
                (0, 0) => 0,
                (_, 0) => self.left,
                _ => self.left.saturating_add(period),
            },
            refill_micros: if estimate > u64::from(limit) {
                // A debt: something comes back once the estimate is below the limit.
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

    /// How long until `cost`, which is at most the limit and does not fit now, fits.
    fn retry(&self, cost: u32) -> u64 {
        let room = self.quota.max().saturating_sub(cost);
        // Within this window only the previous one fades; it is gone at the window's end.
        match room.checked_sub(self.state.current) {
            Some(room) => self.until_faded_to(room),
            None => self.until_next_faded_to(room),
        }
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
}

/// A count to which a cost is added, up to what the quota holds.
fn count_up_to(quota: &Quota, count: u32, cost: u32) -> u32 {
    count.saturating_add(cost).min(quota.max().max(count))
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
