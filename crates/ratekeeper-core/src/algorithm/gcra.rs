//! Both buckets: the generic cell rate algorithm (GCRA).
//!
//! A budget that comes back steadily is represented by one point in time: when it is full again. If the rate
//! is not a whole number of microseconds per unit, that point has a fraction, which is kept exactly as parts
//! of a microsecond (see [`Span`]), so that nothing is ever rounded from one charge to the next.
//!
//! The token bucket holds at most a burst: over any span *d* it admits at most burst + rate × *d*. The leaky
//! bucket is a queue: departures are never closer than 1/rate (to the microsecond), and the queue holds at
//! most its capacity, including the request that leaves immediately. An admitted charge carries a delay: how
//! long to hold the request back until it is its turn.
//!
//! A charge whose caller will wait is a reservation. A token bucket hands out tokens that it does not have
//! yet, and the charge carries the delay until they are there. A leaky bucket refuses a place in the queue
//! that the caller would not wait for.

use std::num::{NonZeroU64, NonZeroU128};

use super::{Ask, Count};
use crate::decision::Budget;
use crate::quota::Span;
use crate::{Algorithm, Outcome, Quota, Receipt, Timestamp};

/// Set in the microseconds of a budget that takes longer than a full refill. No clock gets there.
const BEYOND: u64 = 1 << 63;

/// Whole numbers below this are exact in floating point.
const EXACT: f64 = (1_u64 << 53) as f64;

/// What may be an error of floating point, in parts of a microsecond.
const ERROR: f64 = 1e-3;

/// The point at which the budget is full; any time in the past means that it is.
///
/// A budget that owes, or from which tokens are reserved, takes longer than a full refill to be full. It
/// carries a mark. Without it, that could not be distinguished from a clock that was set back, which must
/// lock no key for longer than a full refill.
///
/// The mark is a bit of the number, so it takes no memory, and the point of a marked budget is later than any
/// time it is compared with: code that forgets to check the mark finds no budget, and never too much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bucket {
    marked: u64,
    parts: u32,
}

impl Bucket {
    #[inline]
    pub(crate) const fn new(full_at: Span, beyond: bool) -> Self {
        // No clock comes near the largest number. If one did, the result would be meaningless, but nothing
        // breaks.
        let micros = full_at.micros & !BEYOND;
        Self { marked: if beyond { micros | BEYOND } else { micros }, parts: full_at.parts }
    }

    /// The point, with the mark in it.
    #[inline]
    pub(crate) const fn marked(self) -> (u64, u32) {
        (self.marked, self.parts)
    }

    /// From what [`marked`](Self::marked) returned.
    #[inline]
    pub(crate) const fn from_marked(marked: u64, parts: u32) -> Self {
        Self { marked, parts }
    }

    /// The point itself.
    pub(crate) const fn full_at(self) -> Span {
        Span { micros: self.marked & !BEYOND, parts: self.parts }
    }

    /// Whether the budget took longer than a full refill when it was last charged.
    pub(crate) const fn is_beyond(self) -> bool {
        self.marked & BEYOND != 0
    }

    /// The state if `used` units are used now.
    pub(super) fn seed(quota: &Quota, used: f64, now: Timestamp) -> Self {
        let mut state = Self::default();
        let wait = if used < f64::from(quota.max()) { span_of_used(quota, used) } else { quota.fill() };
        state.set(quota, wait.min(quota.fill()), now);
        state
    }

    /// How long until the budget is full; at most the longest that the state can mean.
    #[inline(always)]
    fn wait(self, quota: &Quota, now: Timestamp) -> Span {
        match self.marked.checked_sub(now.as_micros()) {
            None => Span::default(),
            // This includes all marked budgets.
            Some(micros) if micros >= quota.fill().micros => self.left(now).min(self.longest(quota)),
            Some(micros) => Span { micros, parts: self.parts },
        }
    }

    /// How long until the budget is full, according to the state.
    fn left(self, now: Timestamp) -> Span {
        let full_at = self.full_at();
        match full_at.micros.checked_sub(now.as_micros()) {
            None => Span::default(),
            Some(micros) => Span { micros, ..full_at },
        }
    }

    /// The longest that the budget can take to be full. If the state says more, the clock was set back.
    fn longest(self, quota: &Quota) -> Span {
        if self.is_beyond() { quota.longest_wait() } else { quota.fill() }
    }

    #[inline]
    fn set(&mut self, quota: &Quota, wait: Span, now: Timestamp) {
        let micros = now.as_micros().saturating_add(wait.micros);
        *self = Self::new(Span { micros, ..wait }, wait > quota.fill());
    }

    /// Takes the cost if it fits at once, as most do. Otherwise it returns `None`, and changes nothing.
    #[inline(always)]
    pub(crate) fn take(&mut self, quota: &Quota, ask: Ask, now: Timestamp) -> Option<Outcome> {
        let (after, delay) = fit_at_once(quota, self.wait(quota, now), ask)?;
        self.set(quota, after, now);
        Some(Outcome::admit(budget(quota, after), delay))
    }
}

impl Count for Bucket {
    fn charge(&mut self, quota: &Quota, ask: Ask, now: Timestamp) -> Outcome {
        let before = self.wait(quota, now);
        match fit(quota, before, ask) {
            Ok((after, delay)) if ask.cost > 0 => {
                self.set(quota, after, now);
                Outcome::admit(budget(quota, after), delay)
            }
            fit => {
                self.settle(quota, now);
                outcome(quota, before, fit)
            }
        }
    }

    fn peek(&self, quota: &Quota, ask: Ask, now: Timestamp) -> Outcome {
        let before = self.wait(quota, now);
        outcome(quota, before, fit(quota, before, ask))
    }

    fn debit(&mut self, quota: &Quota, cost: u32, _: Option<Receipt>, now: Timestamp) {
        let before = self.wait(quota, now);
        let after = add(quota, before, quota.span_of_any(cost));
        // Reservations may already have taken more than may be owed.
        self.set(quota, after.min(quota.longest_debt().max(before)), now);
    }

    fn count(&mut self, quota: &Quota, cost: u32, now: Timestamp) {
        let before = self.wait(quota, now);
        let after = add(quota, before, quota.span_of_any(cost));
        self.set(quota, after.min(quota.fill().max(before)), now);
    }

    fn refund(&mut self, quota: &Quota, cost: u32, receipt: Option<Receipt>, now: Timestamp) {
        let left = self.wait(quota, now);
        let back = if queues(quota) {
            from_queue(quota, left, cost, receipt, now)
        } else {
            from_tokens(quota, cost, receipt, now)
        };
        // A budget that is full stays so, even if the clock is set back.
        if left > Span::default() {
            let after = if back < left { sub(quota, left, back) } else { Span::default() };
            self.set(quota, after, now);
        }
    }

    fn settle(&mut self, quota: &Quota, now: Timestamp) {
        let longest = self.longest(quota);
        if self.left(now) > longest {
            self.set(quota, longest, now);
        }
    }

    fn cut(&mut self, quota: &Quota, now: Timestamp) {
        let wait = self.left(now).min(quota.fill());
        self.set(quota, wait, now);
    }

    fn used(&self, quota: &Quota, now: Timestamp) -> f64 {
        let wait = self.wait(quota, now);
        let parts = wait.micros as f64 * f64::from(quota.rate_units()) + f64::from(wait.parts);
        parts / quota.rate_micros().get() as f64
    }

    fn expires_at(&self, _: &Quota) -> u64 {
        ceil(self.full_at())
    }
}

fn queues(quota: &Quota) -> bool {
    quota.algorithm() == Algorithm::LeakyBucket
}

/// If a charge fits: how long the budget takes to be full after it, and the delay in microseconds. If not:
/// when it would fit, in microseconds; `None` if never.
type Fit = Result<(Span, u64), Option<u64>>;

/// What a charge that costs anything, and fits without a reservation, leaves behind.
#[inline(always)]
fn fit_at_once(quota: &Quota, before: Span, ask: Ask) -> Option<(Span, u64)> {
    if ask.cost == 0 || ask.cost > quota.max() {
        return None;
    }
    let after = add(quota, before, quota.span(ask.cost));
    if after > quota.fill() {
        return None;
    }
    if !queues(quota) {
        return Some((after, 0));
    }
    let delay = ceil(before);
    if ask.wait_up_to.is_some_and(|patience| delay > patience) { None } else { Some((after, delay)) }
}

/// Whether a charge fits into a budget that takes `before` to be full.
fn fit(quota: &Quota, before: Span, ask: Ask) -> Fit {
    if let Some(fit) = fit_at_once(quota, before, ask) {
        return Ok(fit);
    }
    let queues = queues(quota);
    if ask.cost == 0 {
        return Ok((before, if queues { ceil(before) } else { 0 }));
    }
    if ask.cost > quota.max() {
        return Err(None);
    }
    let after = add(quota, before, quota.span(ask.cost));
    let missing = beyond(quota, after, quota.fill());
    let patience = Span { micros: ask.wait_up_to.unwrap_or(0), parts: 0 };
    let retry = match ask.wait_up_to {
        _ if !queues => beyond(quota, missing, patience),
        // The queue never grows beyond its capacity, however patient its callers are.
        Some(_) => missing.max(beyond(quota, before, patience)),
        None => missing,
    };
    if retry > Span::default() { Err(Some(ceil(retry))) } else { Ok((after, ceil(missing))) }
}

/// What is answered for a budget that takes `before` to be full and is not charged.
fn outcome(quota: &Quota, before: Span, fit: Fit) -> Outcome {
    let budget = budget(quota, before);
    match fit {
        Ok((_, delay)) => Outcome::admit(budget, delay),
        Err(Some(retry)) => Outcome::deny(budget, retry),
        Err(None) => Outcome::never(budget),
    }
}

/// The budget that takes `wait` to be full.
#[inline(always)]
fn budget(quota: &Quota, wait: Span) -> Budget {
    let (limit, reset_micros) = (quota.max(), ceil(wait));
    if wait > quota.fill() {
        let one_more = add(quota, wait, quota.span(1));
        let refill_micros = ceil(sub(quota, one_more, quota.fill()));
        return Budget { limit, remaining: 0, reset_micros, refill_micros };
    }
    let units = NonZeroU64::from(quota.rate_units_nonzero());
    let room = sub(quota, quota.fill(), wait);
    // room × rate, in parts: exact, and mostly within 64 bits.
    let whole = room.micros.checked_mul(units.get()).and_then(|whole| whole.checked_add(room.parts.into()));
    let (remaining, over) = match whole {
        Some(parts) => (parts / quota.rate_micros(), parts % quota.rate_micros()),
        None => divide_wide(room, quota),
    };
    let refill_parts = quota.rate_micros().get() - over;
    let refill_micros = if wait == Span::default() {
        0
    } else if units.get() == 1 {
        // As for most quotas. A division takes longer than the rest.
        refill_parts
    } else {
        (refill_parts + (units.get() - 1)) / units
    };
    // What remains is at most the capacity, which is a u32.
    Budget { limit, remaining: remaining as u32, reset_micros, refill_micros }
}

#[cold]
fn divide_wide(room: Span, quota: &Quota) -> (u64, u64) {
    let parts = u128::from(room.micros) * u128::from(quota.rate_units()) + u128::from(room.parts);
    let rate = NonZeroU128::from(quota.rate_micros());
    ((parts / rate) as u64, (parts % rate) as u64)
}

/// What a refund takes off the wait of a token bucket.
///
/// The part of a charge that has had the time to come back by itself is not given back a second time: the
/// bucket may have been full since, and what was not taken then was lost.
fn from_tokens(quota: &Quota, cost: u32, receipt: Option<Receipt>, now: Timestamp) -> Span {
    let due = |receipt: Receipt| {
        let reset_at = if receipt.is_ahead_of(now) { now } else { receipt.reset_at() };
        reset_at.as_micros().saturating_sub(now.as_micros())
    };
    quota.span_of_any(cost).min(Span { micros: receipt.map_or(u64::MAX, due), parts: 0 })
}

/// What a refund takes off a queue that takes `left` to be empty.
///
/// Only the last in line can give up its place: if others queue behind it, they already know when to leave,
/// and a newcomer in the freed place would leave too close to them. So nothing happens without a receipt, nor
/// with one that is not for the last charge. And the next one has to keep its distance from a request that
/// has left.
fn from_queue(quota: &Quota, left: Span, cost: u32, receipt: Option<Receipt>, now: Timestamp) -> Span {
    let end = now.as_micros().saturating_add(ceil(left));
    let Some(receipt) = receipt.filter(|receipt| receipt.reset_at().as_micros() == end) else {
        return Span::default();
    };
    let back = quota.span_of_any(cost);
    if receipt.departs_at() >= now {
        return back;
    }
    let since = now.as_micros() - receipt.departs_at().as_micros();
    let distance = beyond(quota, quota.span(1), Span { micros: since, parts: 0 });
    back.min(beyond(quota, left, distance))
}

/// How long the used units take to come back, rounded up.
fn span_of_used(quota: &Quota, used: f64) -> Span {
    let parts = (used * quota.rate_micros().get() as f64 - ERROR).ceil().max(0.0);
    let units = u64::from(quota.rate_units());
    if parts < EXACT {
        Span { micros: parts as u64 / units, parts: (parts as u64 % units) as u32 }
    } else {
        Span { micros: (parts / units as f64).ceil() as u64, parts: 0 }
    }
}

#[inline]
const fn ceil(span: Span) -> u64 {
    span.micros + (span.parts > 0) as u64
}

#[inline]
fn add(quota: &Quota, a: Span, b: Span) -> Span {
    let parts = u64::from(a.parts) + u64::from(b.parts);
    let units = u64::from(quota.rate_units());
    if parts >= units {
        Span { micros: a.micros + b.micros + 1, parts: (parts - units) as u32 }
    } else {
        Span { micros: a.micros + b.micros, parts: parts as u32 }
    }
}

/// `a` − `b`; `b` must not be larger.
#[inline]
fn sub(quota: &Quota, a: Span, b: Span) -> Span {
    if a.parts >= b.parts {
        Span { micros: a.micros - b.micros, parts: a.parts - b.parts }
    } else {
        Span { micros: a.micros - b.micros - 1, parts: a.parts + (quota.rate_units() - b.parts) }
    }
}

/// By how much `a` is longer than `b`.
#[inline]
fn beyond(quota: &Quota, a: Span, b: Span) -> Span {
    if a > b { sub(quota, a, b) } else { Span::default() }
}
