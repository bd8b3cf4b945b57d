//! What the token bucket and the leaky bucket share: a budget that comes back steadily, known by the
//! one point in time at which it is whole again.
//!
//! Where the rate is not a whole number of microseconds per unit, that point has a fraction, kept
//! exactly as parts of a microsecond (see [`Span`]), so that nothing is ever rounded from one charge
//! to the next.

use super::{Basis, Used};
use crate::decision::Budget;
use crate::quota::Span;
use crate::{Outcome, Quota, Timestamp};

/// Whole numbers below this are exact in floating point.
const EXACT: f64 = (1_u64 << 53) as f64;

/// The point at which the budget is whole; any time in the past means that it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FullAt(pub(crate) Span);

impl FullAt {
    /// How long from now until the budget is whole.
    ///
    /// Never more than a full refill: where the state says more, the clock was set back.
    pub(crate) fn wait(self, quota: &Quota, now: Timestamp) -> Span {
        match self.0.micros.checked_sub(now.as_micros()) {
            None => Span::default(),
            Some(micros) if micros >= quota.fill().micros => quota.fill().min(Span { micros, ..self.0 }),
            Some(micros) => Span { micros, ..self.0 },
        }
    }

    fn set(&mut self, wait: Span, now: Timestamp) {
        self.0 = Span { micros: now.as_micros().saturating_add(wait.micros), parts: wait.parts };
    }

    /// Where the budget is to be whole only after more than a full refill, the clock was set back: from
    /// here on the full refill counts from now. Without this the wait would be cut to a full refill
    /// again and again, until the clock is back where it was.
    pub(crate) fn settle(&mut self, quota: &Quota, now: Timestamp) {
        let fill = quota.fill();
        self.0 = self.0.min(Span { micros: now.as_micros().saturating_add(fill.micros), ..fill });
    }

    /// Makes a charge if it fits. `QUEUE`: to be held back for the wait that was there before.
    pub(crate) fn charge<const QUEUE: bool>(&mut self, quota: &Quota, cost: u32, now: Timestamp) -> Outcome {
        if let Some(outcome) = self.charge_steady(quota, cost, now) {
            return outcome;
        }
        if let Some(outcome) = self.deny_steady(quota, cost, now) {
            return outcome;
        }
        let before = self.wait(quota, now);
        let Some(after) = after(before, quota, cost) else {
            self.settle(quota, now);
            return deny(quota, before, cost);
        };
        self.set(after, now);
        Outcome::admit(budget(quota, after), if QUEUE { ceil(before) } else { 0 })
    }

    /// Makes a charge if it fits and the quota is [steady](Quota::steady): then half of the work is
    /// not there to be done.
    #[inline(always)]
    pub(crate) fn charge_steady(&mut self, quota: &Quota, cost: u32, now: Timestamp) -> Option<Outcome> {
        let steady = quota.steady()?;
        let fill = quota.fill().micros;
        let before = self.0.micros.saturating_sub(now.as_micros()).min(fill);
        let after = before.wrapping_add(steady.span(cost));
        if cost > quota.max() || after > fill {
            return None;
        }
        // No clock comes near the end of the numbers; if one did, nothing would make sense, but nothing breaks.
        self.0 = Span { micros: now.as_micros().wrapping_add(after), parts: 0 };
        let (remaining, next) = steady.units(fill - after);
        let refill_micros = if after == 0 { 0 } else { next };
        let budget = Budget { limit: quota.max(), remaining, reset_micros: after, refill_micros };
        Some(Outcome::admit(budget, if steady.queues { before } else { 0 }))
    }

    /// Denies a charge that [`charge_steady`](Self::charge_steady) did not make, if that was not for the quota.
    fn deny_steady(&mut self, quota: &Quota, cost: u32, now: Timestamp) -> Option<Outcome> {
        let steady = quota.steady()?;
        let fill = quota.fill().micros;
        let before = self.0.micros.saturating_sub(now.as_micros()).min(fill);
        self.settle(quota, now);
        let (remaining, next) = steady.units(fill - before);
        let refill_micros = if before == 0 { 0 } else { next };
        let budget = Budget { limit: quota.max(), remaining, reset_micros: before, refill_micros };
        if cost > quota.max() {
            return Some(Outcome::never(budget));
        }
        Some(Outcome::deny(budget, before + steady.span(cost) - fill))
    }

    pub(crate) fn peek<const QUEUE: bool>(self, quota: &Quota, cost: u32, now: Timestamp) -> Outcome {
        let before = self.wait(quota, now);
        match after(before, quota, cost) {
            Some(_) => Outcome::admit(budget(quota, before), if QUEUE { ceil(before) } else { 0 }),
            None => deny(quota, before, cost),
        }
    }

    /// Takes `cost` units off the wait, and at most so many microseconds.
    pub(crate) fn give_back(&mut self, basis: &Basis, cost: u32, at_most: u64, now: Timestamp) {
        let left = self.left(now);
        let back = span(basis, cost).min(Span { micros: at_most, parts: 0 });
        self.set(if back >= left { Span::default() } else { sub(left, back, basis.units) }, now);
    }

    /// How long until the budget is whole, whatever the quota.
    pub(crate) fn left(self, now: Timestamp) -> Span {
        match self.0.micros.checked_sub(now.as_micros()) {
            None => Span::default(),
            Some(micros) => Span { micros, ..self.0 },
        }
    }

    /// The point at which the budget is whole if `used` is used now.
    pub(crate) fn seed(quota: &Quota, used: Used, now: Timestamp) -> Self {
        let mut state = Self::default();
        let parts = (used.get() * quota.rate_micros().get() as f64).ceil();
        let units = u64::from(quota.rate_units());
        let wait = if parts < EXACT {
            Span { micros: parts as u64 / units, parts: (parts as u64 % units) as u32 }
        } else {
            Span { micros: (parts / units as f64).ceil() as u64, parts: 0 }
        };
        state.set(
            if used.get() < f64::from(quota.max()) { wait.min(quota.fill()) } else { quota.fill() },
            now,
        );
        state
    }

    /// How much is used now.
    pub(crate) fn used(self, basis: &Basis, now: Timestamp) -> Used {
        let left = self.left(now);
        let parts = left.micros as f64 * f64::from(basis.units) + f64::from(left.parts);
        Used::exactly(parts / basis.micros.get() as f64)
    }
}

/// How long `cost` units take to come back, whether or not they fit into a budget.
fn span(basis: &Basis, cost: u32) -> Span {
    let units = u128::from(basis.units);
    let parts = u128::from(cost) * u128::from(basis.micros.get());
    let micros = u64::try_from(parts / units).unwrap_or(u64::MAX);
    Span { micros, parts: (parts % units) as u32 }
}

/// The wait after a charge, or `None` if it does not fit.
fn after(before: Span, quota: &Quota, cost: u32) -> Option<Span> {
    if cost > quota.max() {
        return None;
    }
    let after = add(before, quota.span(cost), quota.rate_units());
    if after <= quota.fill() { Some(after) } else { None }
}

/// The budget that takes `wait` to be whole.
fn budget(quota: &Quota, wait: Span) -> Budget {
    let units = u64::from(quota.rate_units());
    let room = sub(quota.fill(), wait, quota.rate_units());
    // room × rate, in parts: exact, and mostly within 64 bits.
    let whole = room.micros.checked_mul(units).and_then(|whole| whole.checked_add(room.parts.into()));
    let (remaining, over) = match whole {
        Some(parts) => (parts / quota.rate_micros(), parts % quota.rate_micros()),
        None => divide_wide(room, quota),
    };
    let refill_parts = quota.rate_micros().get() - over;
    Budget {
        limit: quota.max(),
        // At most the capacity, which is a u32.
        remaining: remaining as u32,
        reset_micros: ceil(wait),
        refill_micros: if wait == Span::default() {
            0
        } else if units == 1 {
            refill_parts
        } else {
            refill_parts.div_ceil(units)
        },
    }
}

#[cold]
fn divide_wide(room: Span, quota: &Quota) -> (u64, u64) {
    let parts = u128::from(room.micros) * u128::from(quota.rate_units()) + u128::from(room.parts);
    let rate = u128::from(quota.rate_micros().get());
    ((parts / rate) as u64, (parts % rate) as u64)
}

#[inline]
pub(crate) fn ceil(span: Span) -> u64 {
    span.micros + u64::from(span.parts > 0)
}

#[inline]
fn add(a: Span, b: Span, units: u32) -> Span {
    let parts = u64::from(a.parts) + u64::from(b.parts);
    let units = u64::from(units);
    if parts >= units {
        Span { micros: a.micros + b.micros + 1, parts: (parts - units) as u32 }
    } else {
        Span { micros: a.micros + b.micros, parts: parts as u32 }
    }
}

/// `a` − `b`; `b` must not be larger.
#[inline]
fn sub(a: Span, b: Span, units: u32) -> Span {
    if a.parts >= b.parts {
        Span { micros: a.micros - b.micros, parts: a.parts - b.parts }
    } else {
        Span { micros: a.micros - b.micros - 1, parts: a.parts + (units - b.parts) }
    }
}

/// The outcome of a charge that does not fit, the wait being `before`.
#[cold]
fn deny(quota: &Quota, before: Span, cost: u32) -> Outcome {
    let budget = budget(quota, before);
    if cost > quota.max() {
        return Outcome::never(budget);
    }
    let after = add(before, quota.span(cost), quota.rate_units());
    Outcome::deny(budget, ceil(sub(after, quota.fill(), quota.rate_units())))
}
