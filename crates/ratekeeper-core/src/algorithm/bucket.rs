//! What the token bucket and the leaky bucket share: a budget that comes back steadily, represented by the
//! one point in time at which it is full again.
//!
//! If the rate is not a whole number of microseconds per unit, that point has a fraction, which is kept
//! exactly as parts of a microsecond (see [`Span`]), so that nothing is ever rounded from one charge to the
//! next.

use super::full_at::FullAt;
use super::{Basis, Used};
use crate::decision::Budget;
use crate::quota::{Span, Steady};
use crate::{Outcome, Quota, Timestamp};

/// Whole numbers below this are exact in floating point.
const EXACT: f64 = (1_u64 << 53) as f64;

/// How many times as much as another quota of the same rate a quota is assumed to hold at most. The larger
/// this is, the longer a key is kept after the clock was set back: for as many refills at most.
const LIKELY: u64 = 100_000;
/// The longest that any budget takes to be full.
pub(super) const LONGEST: Span = Span { micros: 1 << 52, parts: 0 };

impl FullAt {
    /// How long from now until the budget is full.
    ///
    /// Never more than a full refill, or two if it owes: if the state says more, the clock was set back.
    pub(crate) fn wait(self, quota: &Quota, now: Timestamp) -> Span {
        let (marked, parts) = self.marked();
        match marked.checked_sub(now.as_micros()) {
            None => Span::default(),
            // This includes all budgets that owe.
            Some(micros) if micros >= quota.fill().micros => self.left(now).min(self.longest_wait(quota)),
            Some(micros) => Span { micros, parts },
        }
    }

    fn longest_wait(self, quota: &Quota) -> Span {
        if self.owes() { quota.longest_debt() } else { quota.fill() }
    }

    pub(super) fn set(&mut self, wait: Span, now: Timestamp, owes: bool) {
        let micros = now.as_micros().saturating_add(wait.micros);
        *self = Self::new(Span { micros, ..wait }, owes);
    }

    /// If the budget would be full only later than possible, the clock was set back: from here on the longest
    /// wait counts from now. Without this, the wait would be cut again and again, until the clock is back
    /// where it was.
    pub(crate) fn settle(&mut self, quota: &Quota, now: Timestamp) {
        let longest = self.longest_wait(quota);
        if self.left(now) > longest {
            self.set(longest, now, self.owes());
        }
    }

    /// Makes a charge if it fits. `QUEUE`: it is held back for the wait that was there before.
    pub(crate) fn charge<const QUEUE: bool>(&mut self, quota: &Quota, cost: u32, now: Timestamp) -> Outcome {
        let charged = quota.steady().and_then(|steady| self.charge_steady(steady, quota, cost, now));
        if let Some(outcome) = charged {
            return outcome;
        }
        // The charge was tried, so an answer here is a denial.
        if let Some(outcome) = self.peek_steady(quota, cost, now) {
            return outcome;
        }
        let before = self.wait(quota, now);
        let Some(after) = after(before, quota, cost) else {
            self.settle(quota, now);
            return refuse::<QUEUE>(quota, before, cost);
        };
        self.set(after, now, false);
        Outcome::admit(budget(quota, after), if QUEUE { ceil(before) } else { 0 })
    }

    /// Makes a charge under a [steady](Quota::steady) quota if it fits, the budget does not owe and the clock
    /// was not set back. Under these conditions, half of the work is unnecessary.
    #[inline(always)]
    pub(crate) fn charge_steady(
        &mut self,
        steady: &Steady,
        quota: &Quota,
        cost: u32,
        now: Timestamp,
    ) -> Option<Outcome> {
        let fill = quota.fill().micros;
        let before = self.marked().0.saturating_sub(now.as_micros());
        // A cost above what the quota holds takes longer than the quota takes to fill, so it does not fit
        // either.
        let after = before.checked_add(steady.span(cost)).filter(|after| *after <= fill)?;
        // No clock comes near the largest number. If one did, the result would be meaningless, but nothing
        // breaks.
        *self = Self::from_marked(now.as_micros().wrapping_add(after), 0);
        let (remaining, next) = steady.units(fill - after);
        let refill_micros = if after == 0 { 0 } else { next };
        let budget = Budget { limit: quota.max(), remaining, reset_micros: after, refill_micros };
        Some(Outcome::admit(budget, if steady.queues { before } else { 0 }))
    }

    /// What [`charge_steady`](Self::charge_steady) would answer. Where that makes no charge because of the
    /// cost, this is a denial.
    #[inline]
    fn peek_steady(self, quota: &Quota, cost: u32, now: Timestamp) -> Option<Outcome> {
        let steady = quota.steady()?;
        let fill = quota.fill().micros;
        let before = self.marked().0.saturating_sub(now.as_micros());
        if before > fill {
            return None;
        }
        let (remaining, next) = steady.units(fill - before);
        let refill_micros = if before == 0 { 0 } else { next };
        let budget = Budget { limit: quota.max(), remaining, reset_micros: before, refill_micros };
        if cost > quota.max() {
            return Some(Outcome::never(budget));
        }
        let after = before + steady.span(cost);
        if after <= fill {
            return Some(Outcome::admit(budget, if steady.queues { before } else { 0 }));
        }
        Some(Outcome::deny(budget, after - fill))
    }

    #[inline]
    pub(crate) fn peek<const QUEUE: bool>(self, quota: &Quota, cost: u32, now: Timestamp) -> Outcome {
        if let Some(outcome) = self.peek_steady(quota, cost, now) {
            return outcome;
        }
        let before = self.wait(quota, now);
        match after(before, quota, cost) {
            Some(_) => Outcome::admit(budget(quota, before), if QUEUE { ceil(before) } else { 0 }),
            None => refuse::<QUEUE>(quota, before, cost),
        }
    }

    /// Takes `cost` units, whether or not they fit.
    pub(crate) fn debit(&mut self, quota: &Quota, cost: u32, now: Timestamp) {
        let after = add(self.wait(quota, now), quota.span_of_debit(cost), quota.rate_units());
        let after = after.min(quota.longest_debt());
        self.set(after, now, after > quota.fill());
    }

    /// Takes `cost` units that were admitted under another quota: up to what this one holds, if that is
    /// known.
    pub(crate) fn press(&mut self, basis: &Basis, max: u32, cost: u32, now: Timestamp) {
        let left = self.left(now);
        let most = if max == 0 { LONGEST } else { span(basis, max).min(LONGEST).max(left) };
        let after = add(left, span(basis, cost).min(LONGEST), basis.units).min(most);
        self.set(after, now, self.owes() && left > Span::default());
    }

    /// Whether it is full only later than this quota takes at most, or takes to pay off all that it may owe.
    /// Either it was counted under a quota that holds more, or the clock was set back. These two cannot be
    /// told apart, unless the excess is more than any quota is likely to hold.
    pub(crate) fn is_beyond(self, quota: &Quota, now: Timestamp) -> bool {
        let (left, fill) = (self.left(now), quota.fill());
        left > fill
            && left > self.longest_wait(quota)
            && left.micros <= LIKELY.saturating_mul(fill.micros.saturating_add(1))
    }

    /// Takes `cost` units off the wait, but at most `at_most` microseconds.
    pub(crate) fn give_back(&mut self, basis: &Basis, cost: u32, at_most: u64, now: Timestamp) {
        let left = self.left(now);
        if left == Span::default() {
            // It stays full, even if the clock is set back.
            return;
        }
        let back = span(basis, cost).min(Span { micros: at_most, parts: 0 });
        if back >= left {
            self.set(Span::default(), now, false);
        } else {
            // How much the quota holds is unknown here. Whoever knows it next removes the mark if it is paid
            // off.
            self.set(sub(left, back, basis.units), now, self.owes());
        }
    }

    /// How long until the budget is full, whatever the quota.
    pub(crate) fn left(self, now: Timestamp) -> Span {
        let at = self.at();
        match at.micros.checked_sub(now.as_micros()) {
            None => Span::default(),
            Some(micros) => Span { micros, ..at },
        }
    }

    /// The point at which the budget is full if `used` is used now.
    pub(crate) fn seed(quota: &Quota, used: Used, now: Timestamp) -> Self {
        let mut state = Self::default();
        let wait = span_of_used(&Basis::of(quota), used);
        let wait = if used.get() < f64::from(quota.max()) { wait.min(quota.fill()) } else { quota.fill() };
        state.set(wait, now, false);
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
pub(super) fn span(basis: &Basis, cost: u32) -> Span {
    let units = u128::from(basis.units);
    let parts = u128::from(cost) * u128::from(basis.micros.get());
    let micros = u64::try_from(parts / units).unwrap_or(u64::MAX);
    Span { micros, parts: (parts % units) as u32 }
}

/// How long the used units take to come back, rounded up.
pub(super) fn span_of_used(basis: &Basis, used: Used) -> Span {
    let parts = (used.get() * basis.micros.get() as f64).ceil();
    let units = u64::from(basis.units);
    if parts < EXACT {
        Span { micros: parts as u64 / units, parts: (parts as u64 % units) as u32 }
    } else {
        Span { micros: (parts / units as f64).ceil() as u64, parts: 0 }
    }
}

/// The wait after a charge, or `None` if it does not fit.
fn after(before: Span, quota: &Quota, cost: u32) -> Option<Span> {
    if cost > quota.max() {
        return None;
    }
    let after = add(before, quota.span(cost), quota.rate_units());
    if after <= quota.fill() { Some(after) } else { None }
}

/// The budget that takes `wait` to be full.
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
pub(super) fn add(a: Span, b: Span, units: u32) -> Span {
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
pub(super) fn sub(a: Span, b: Span, units: u32) -> Span {
    if a.parts >= b.parts {
        Span { micros: a.micros - b.micros, parts: a.parts - b.parts }
    } else {
        Span { micros: a.micros - b.micros - 1, parts: a.parts + (units - b.parts) }
    }
}

/// The outcome of a charge that does not fit; the wait is `before`.
#[cold]
fn refuse<const QUEUE: bool>(quota: &Quota, before: Span, cost: u32) -> Outcome {
    let budget = if before > quota.fill() { debt(quota, before) } else { budget(quota, before) };
    if cost == 0 {
        // A cost of zero always fits.
        return Outcome::admit(budget, if QUEUE { ceil(before) } else { 0 });
    }
    if cost > quota.max() {
        return Outcome::never(budget);
    }
    Outcome::deny(budget, ceil(until_fits(quota, before, cost)))
}

/// The budget that takes `wait` to be full, which is more than a full refill.
fn debt(quota: &Quota, wait: Span) -> Budget {
    let refill_micros = ceil(until_fits(quota, wait, 1));
    Budget { limit: quota.max(), remaining: 0, reset_micros: ceil(wait), refill_micros }
}

/// How long until `cost`, which does not fit now, fits; the wait is `before`.
fn until_fits(quota: &Quota, before: Span, cost: u32) -> Span {
    let after = add(before, quota.span(cost), quota.rate_units());
    sub(after, quota.fill(), quota.rate_units())
}
