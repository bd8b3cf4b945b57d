//! What the token bucket and the leaky bucket share: a budget that comes back steadily, known by the
//! one point in time at which it is whole again.
//!
//! Where the rate is not a whole number of microseconds per unit, that point has a fraction, kept
//! exactly as parts of a microsecond (see [`Span`]), so that nothing is ever rounded from one charge
//! to the next.

use super::used::{FRACTION, Used};
use crate::decision::Budget;
use crate::quota::Span;
use crate::{Outcome, Quota, Timestamp};

/// The point at which the budget is whole; any time in the past means that it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FullAt(pub(crate) Span);

/// A charge as it would turn out.
pub(crate) struct Tried {
    /// How long the budget would take to be whole before the charge.
    pub(crate) before: Span,
    pub(crate) verdict: Verdict,
}

pub(crate) enum Verdict {
    /// How long the budget takes to be whole after the charge.
    Admitted(Span),
    /// How long until the cost fits, in microseconds, rounded up.
    Denied(u64),
    Never,
}

impl FullAt {
    /// How long from now until the budget is whole.
    ///
    /// Never more than a full refill: where the state says more, the clock was set back.
    #[inline]
    pub(crate) fn wait(self, quota: &Quota, now: Timestamp) -> Span {
        let now = now.as_micros();
        if self.0.micros < now {
            return Span::default();
        }
        let wait = Span { micros: self.0.micros - now, parts: self.0.parts };
        if wait > quota.fill() { quota.fill() } else { wait }
    }

    #[inline]
    pub(crate) fn set(&mut self, wait: Span, now: Timestamp) {
        self.0 = Span { micros: now.as_micros() + wait.micros, parts: wait.parts };
    }

    #[inline]
    pub(crate) fn attempt(self, quota: &Quota, cost: u32, now: Timestamp) -> Tried {
        let before = self.wait(quota, now);
        if cost > quota.max() {
            return Tried { before, verdict: Verdict::Never };
        }
        let after = add(before, quota.span(cost), quota.rate_units());
        let verdict = if after <= quota.fill() {
            Verdict::Admitted(after)
        } else {
            Verdict::Denied(ceil(sub(after, quota.fill(), quota.rate_units())))
        };
        Tried { before, verdict }
    }

    /// Takes `cost` units off the wait. Nothing, if there is none.
    pub(crate) fn give_back(&mut self, quota: &Quota, cost: u32, now: Timestamp) {
        let wait = self.wait(quota, now);
        let back = quota.span(cost.min(quota.max()));
        self.set(if back >= wait { Span::default() } else { sub(wait, back, quota.rate_units()) }, now);
    }

    /// The point at which the budget is whole if `used` is used now.
    pub(crate) fn seed(quota: &Quota, used: Used, now: Timestamp) -> Self {
        let mut state = Self::default();
        let whole = used.whole();
        if whole >= quota.max() {
            state.set(quota.fill(), now);
            return state;
        }
        // The fraction's time, rounded up to a part of a microsecond.
        let scaled = u128::from(used.fraction()) * u128::from(quota.rate_micros());
        let parts = scaled.div_ceil(1 << FRACTION);
        let units = u128::from(quota.rate_units());
        let rest = Span { micros: (parts / units) as u64, parts: (parts % units) as u32 };
        state.set(add(quota.span(whole), rest, quota.rate_units()), now);
        state
    }

    /// How much is used now.
    pub(crate) fn used(self, quota: &Quota, now: Timestamp) -> Used {
        let wait = self.wait(quota, now);
        let parts = u128::from(wait.micros) * u128::from(quota.rate_units()) + u128::from(wait.parts);
        Used::ratio(parts, u128::from(quota.rate_micros()))
    }
}

/// The budget that takes `wait` to be whole.
#[inline]
pub(crate) fn budget(quota: &Quota, wait: Span) -> Budget {
    let units = u64::from(quota.rate_units());
    let room = sub(quota.fill(), wait, quota.rate_units());
    // room × rate, in parts: exact, and mostly within 64 bits.
    let (remaining, over) = match room.micros.checked_mul(units) {
        Some(whole) if whole <= u64::MAX - u64::from(u32::MAX) => {
            let parts = whole + u64::from(room.parts);
            (parts / quota.rate_micros(), parts % quota.rate_micros())
        }
        _ => {
            let parts = u128::from(room.micros) * u128::from(units) + u128::from(room.parts);
            let rate = u128::from(quota.rate_micros());
            ((parts / rate) as u64, (parts % rate) as u64)
        }
    };
    let refill_parts = quota.rate_micros() - over;
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

/// The outcome of a charge that changes nothing.
pub(crate) fn untouched(quota: &Quota, tried: &Tried, delay_micros: u64) -> Outcome {
    let budget = budget(quota, tried.before);
    match tried.verdict {
        Verdict::Admitted(_) => Outcome::admit(budget, delay_micros),
        Verdict::Denied(wait) => Outcome::deny(budget, wait),
        Verdict::Never => Outcome::never(budget),
    }
}
