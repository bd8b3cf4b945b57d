//! A counter as bytes, for stores outside the process.
//!
//! All numbers are little-endian and unsigned. First comes what the numbers mean:
//!
//! | bytes | |
//! |---|---|
//! | 1 | algorithm + 5 × form, the algorithms being numbered as in [`Algorithm::ALL`] |
//! | buckets: *m*, 1 to 7 | microseconds of the rate in lowest terms; form = (*m* − 1) + 7 × *u* |
//! | buckets: *u*, 0 to 4 | units of the rate; none means one |
//! | buckets with one unit: *m*, 1 to 6 | milliseconds of the rate, if they are whole; form = 35 + (*m* − 1) |
//! | others: 0 or 7 | period in microseconds, if form mod 5 is 4; a form of 0 to 3 is a second, minute, hour or day |
//!
//! Then what was counted:
//!
//! | | bytes | |
//! |---|---|---|
//! | buckets | 7 | the microsecond at which the budget is full, plus 2⁵⁵ if it owes |
//! | | *u* | parts of a microsecond; as many make one as the rate has units |
//! | fixed window | 7 | the microsecond at which the window starts |
//! | | 1 to 4 | count |
//! | sliding window | 6 | number of the window |
//! | | 1 to 4, twice | count of the window before, count of this one |
//! | sliding log | 4 | cost of all entries |
//! | | 7 + *w*, each | moment and cost of an entry, oldest first; form ≥ 5 × (*w* − 1). Before the oldest there may be zeros, and after the newest moments of 2⁵³ or more with a cost of zero, which reserve room for others |
//!
//! For two quotas at once, both counters:
//!
//! | bytes | |
//! |---|---|
//! | 1 | 255 |
//! | 4 | how many bytes the first counter takes |
//! | 4, twice | how much the quota of each holds; for the second, 0 if that is unknown |
//! | 7 | the microsecond until which the second is kept |
//! | 7 + 4, twice | for each that has a guard, as a fixed window may, when that is full: the microsecond, and parts of one, as many to one as the quota holds; else 0. For the second, if it is unknown how much its quota holds, the microsecond at which it was put there |
//! | | the counter of the quota that was asked last |
//! | | the counter of the other |
//!
//! For more quotas, the same with 254 in front, and after the guards:
//!
//! | bytes | |
//! |---|---|
//! | 4 | how many bytes the second counter takes |
//! | 4, twice | how much the loosest of all quotas holds, and how much was used beyond that |
//! | 7 | the microsecond until which that is kept |
//!
//! and at the end the counter of that one, a token bucket.
//!
//! Most counters are 12 bytes or less, which is what the smallest string takes in Redis.

use std::num::NonZeroU64;

use super::beside::{Beside, Side};
use super::counter::State;
use super::guard::Guard;
use super::loosest::Loosest;
use super::{
    Basis, Counter, FullAt, bucket, fixed_window, leaky_bucket, sliding_log, sliding_window, token_bucket,
};
use crate::quota::Span;
use crate::{Algorithm, DAY, HOUR, MINUTE, Quota, SECOND};

/// The periods that have their own form.
const PERIODS: [u64; 4] =
    [SECOND.as_micros() as u64, MINUTE.as_micros() as u64, HOUR.as_micros() as u64, DAY.as_micros() as u64];
/// The form of a period that is written out.
const WRITTEN_OUT: usize = PERIODS.len();
const PERIOD_FORMS: usize = WRITTEN_OUT + 1;
const ALGORITHMS: usize = Algorithm::ALL.len();
/// The first form for a rate of one unit per whole number of milliseconds.
const MILLIS: usize = 35;
/// No moment is as late as this: moments are exact in floating point.
const END: u64 = 1 << 53;
/// The first byte of two counters. No single counter begins with it.
const TWO: u8 = u8::MAX;
/// The first byte of more than two counters.
const MORE: u8 = TWO - 1;
/// The width of a counter's length.
const LENGTH: usize = 4;
/// The width of how much a quota holds.
const MAX: usize = 4;
/// Added to the moment at which a budget that owes is full: the last bit of a moment's bytes.
const OWES: u64 = 1 << 55;
/// The width of a moment.
const MOMENT: usize = 7;
/// The width of a window's number: enough for windows of a millisecond.
const INDEX: usize = 6;
/// The width of the cost of a whole log.
const TOTAL: usize = 4;

impl Counter {
    /// The leading bytes of a counter that was counted under this quota.
    ///
    /// A counter that begins with them need not be re-read for the quota.
    ///
    /// ```
    /// use ratekeeper_core::algorithm::Counter;
    /// use ratekeeper_core::Quota;
    ///
    /// // The rate matters, not the burst: a counter of the one is a counter of the other.
    /// let head = Counter::head(&Quota::per_minute(100));
    /// assert_eq!(head, Counter::head(&Quota::per_minute(100).burst(500)));
    /// assert_ne!(head, Counter::head(&Quota::per_minute(101)));
    /// ```
    #[must_use]
    pub fn head(quota: &Quota) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(1 + MOMENT + TOTAL);
        write_head(&mut bytes, &Basis::of(quota), width(quota.max().into()));
        bytes
    }

    /// The counter as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let Some(beside) = &self.beside else {
            return plain(&self.basis, &self.state);
        };
        let own = plain(&self.basis, &self.state);
        let mut bytes = vec![if beside.loosest.is_some() { MORE } else { TWO }];
        write(&mut bytes, own.len() as u64, LENGTH);
        write(&mut bytes, beside.max.into(), MAX);
        write(&mut bytes, beside.other.max.into(), MAX);
        write(&mut bytes, beside.until, MOMENT);
        let others_guard = if beside.other.max == 0 {
            // There is no guard.
            Span { micros: beside.since, parts: 0 }
        } else {
            beside.other.guard.0.at()
        };
        for Span { micros, parts } in [beside.guard.0.at(), others_guard] {
            write(&mut bytes, micros, MOMENT);
            write(&mut bytes, parts.into(), MAX);
        }
        let other = plain(&beside.other.basis, &beside.other.state);
        if let Some(loosest) = &beside.loosest {
            write(&mut bytes, other.len() as u64, LENGTH);
            write(&mut bytes, loosest.side.max.into(), MAX);
            write(&mut bytes, loosest.excess.into(), MAX);
            write(&mut bytes, loosest.until, MOMENT);
        }
        bytes.extend(own);
        bytes.extend(other);
        if let Some(loosest) = &beside.loosest {
            bytes.extend(plain(&loosest.side.basis, &loosest.side.state));
        }
        bytes
    }

    /// The counter with these bytes; `None` if they are not those of a counter.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [TWO, rest @ ..] => read_several(rest, false),
            [MORE, rest @ ..] => read_several(rest, true),
            _ => read_plain(bytes),
        }
    }
}

/// The bytes of one counter.
fn plain(basis: &Basis, state: &State) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16);
    let costs = match state {
        State::SlidingLog(log) => {
            log.entries().map(|(_, cost)| cost).max().map_or(1, |cost| width(cost.into()))
        }
        _ => 1,
    };
    write_head(&mut bytes, basis, costs);
    match state {
        State::TokenBucket(state) => write_full_at(&mut bytes, state.0, basis.units),
        State::LeakyBucket(state) => write_full_at(&mut bytes, state.0, basis.units),
        State::FixedWindow(state) => {
            write(&mut bytes, state.start, MOMENT);
            write(&mut bytes, state.count.into(), width(state.count.into()));
        }
        State::SlidingWindow(state) => {
            write(&mut bytes, state.index, INDEX);
            let width = width(state.previous.max(state.current).into());
            write(&mut bytes, state.previous.into(), width);
            write(&mut bytes, state.current.into(), width);
        }
        State::SlidingLog(log) => {
            write(&mut bytes, log.total(), TOTAL);
            for (at, cost) in log.entries() {
                write(&mut bytes, at, MOMENT);
                write(&mut bytes, cost.into(), costs);
            }
        }
    }
    bytes
}

/// `more`: whether there are more than two.
fn read_several(mut rest: &[u8], more: bool) -> Option<Counter> {
    let length = read(&mut rest, LENGTH)? as usize;
    let (max, others_max) = (read(&mut rest, MAX)? as u32, read(&mut rest, MAX)? as u32);
    let until = read(&mut rest, MOMENT).filter(|until| *until < END)?;
    let guard = read_guard(&mut rest, max)?;
    let (others_guard, since) = if others_max > 0 {
        (read_guard(&mut rest, others_max)?, 0)
    } else {
        let (since, parts) = (read(&mut rest, MOMENT)?, read(&mut rest, MAX)?);
        (since <= until && parts == 0).then_some((Guard::default(), since))?
    };
    let more = if more {
        let (length, max) = (read(&mut rest, LENGTH)? as usize, read(&mut rest, MAX)? as u32);
        let excess = read(&mut rest, MAX)? as u32;
        Some((length, max, excess, read(&mut rest, MOMENT).filter(|until| *until < END)?))
    } else {
        None
    };
    let (own, rest) = rest.split_at_checked(length)?;
    let (other, loosest) = match more {
        Some((length, max, excess, until)) => {
            let (other, loosest) = rest.split_at_checked(length)?;
            (other, Some(Loosest { side: read_loosest(loosest, max)?, excess, until }))
        }
        None => (rest, None),
    };
    let (own, other) = (read_plain(own)?, read_plain(other)?);
    // Only fixed windows have guards.
    for (guard, counter) in [(guard, &own), (others_guard, &other)] {
        if !guard.is_none() && counter.basis.algorithm != Algorithm::FixedWindow {
            return None;
        }
    }
    let other = Side { basis: other.basis, state: other.state, max: others_max, guard: others_guard };
    let beside = Beside { max, guard, other, loosest, until, since };
    (max > 0).then(|| Counter { beside: Some(Box::new(beside)), ..own })
}

fn read_loosest(bytes: &[u8], max: u32) -> Option<Side> {
    let Counter { basis, state, .. } = read_plain(bytes)?;
    let is_bucket = basis.algorithm == Algorithm::TokenBucket;
    let comes_back = bucket::span(&basis, max).micros < bucket::LONGEST.micros;
    (max > 0 && is_bucket && comes_back).then(|| Side { basis, state, max, guard: Guard::default() })
}

fn read_guard(rest: &mut &[u8], max: u32) -> Option<Guard> {
    let (micros, parts) = (read(rest, MOMENT)?, read(rest, MAX)? as u32);
    let guard = Guard(FullAt::new(Span { micros, parts }, false));
    (micros < END && (micros == 0 || parts < max)).then_some(guard)
}

fn read_plain(bytes: &[u8]) -> Option<Counter> {
    let mut rest = bytes;
    let tag = usize::from(read_byte(&mut rest)?);
    let (algorithm, form) = (Algorithm::ALL[tag % ALGORITHMS], tag / ALGORITHMS);
    match algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => read_bucket(algorithm, form, rest),
        Algorithm::FixedWindow | Algorithm::SlidingWindow | Algorithm::SlidingLog => {
            let micros = match form % PERIOD_FORMS {
                WRITTEN_OUT => read(&mut rest, MOMENT)?,
                period => PERIODS[period],
            };
            let micros = NonZeroU64::new(micros).filter(|micros| micros.get() < END)?;
            let basis = Basis { algorithm, units: 1, micros };
            let costs = form / PERIOD_FORMS + 1;
            let state = match algorithm {
                Algorithm::FixedWindow if costs == 1 => read_fixed_window(rest)?,
                Algorithm::SlidingWindow if costs == 1 => read_sliding_window(rest, micros.get())?,
                Algorithm::SlidingLog if costs <= TOTAL => read_log(rest, costs)?,
                _ => return None,
            };
            Some(Counter::of(basis, state))
        }
    }
}

fn write_head(bytes: &mut Vec<u8>, basis: &Basis, costs: usize) {
    let algorithm = basis.algorithm as usize;
    match basis.algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let micros = basis.micros.get();
            let (form, number, wide) = if basis.units == 1 && micros.is_multiple_of(1_000) {
                let wide = width(micros / 1_000);
                (MILLIS + wide - 1, micros / 1_000, wide)
            } else {
                let wide = width(micros);
                (wide - 1 + MOMENT * units_width(basis.units), micros, wide)
            };
            // At most 4 + 5 × 40.
            bytes.push((algorithm + ALGORITHMS * form) as u8);
            write(bytes, number, wide);
            write(bytes, basis.units.into(), units_width(basis.units));
        }
        Algorithm::FixedWindow | Algorithm::SlidingWindow | Algorithm::SlidingLog => {
            let period = PERIODS.iter().position(|period| *period == basis.period()).unwrap_or(WRITTEN_OUT);
            let costs = if basis.algorithm == Algorithm::SlidingLog { costs - 1 } else { 0 };
            bytes.push((algorithm + ALGORITHMS * (period + PERIOD_FORMS * costs)) as u8);
            if period == WRITTEN_OUT {
                write(bytes, basis.period(), MOMENT);
            }
        }
    }
}

fn write_full_at(bytes: &mut Vec<u8>, full_at: FullAt, units: u32) {
    let Span { micros, parts } = full_at.at();
    write(bytes, if full_at.owes() { micros | OWES } else { micros }, MOMENT);
    write(bytes, parts.into(), units_width(units));
}

fn read_bucket(algorithm: Algorithm, form: usize, mut rest: &[u8]) -> Option<Counter> {
    let (wide, units_wide, scale) = match form.checked_sub(MILLIS) {
        Some(wide) if wide < 6 => (wide + 1, 0, 1_000),
        Some(_) => return None,
        None => (form % MOMENT + 1, form / MOMENT, 1),
    };
    let micros = NonZeroU64::new(read(&mut rest, wide)? * scale).filter(|micros| micros.get() < END)?;
    let units = if units_wide == 0 { 1 } else { u32::try_from(read(&mut rest, units_wide)?).ok()? };
    let marked = read(&mut rest, MOMENT)?;
    let (whole_at, owes) = (marked & !OWES, marked & OWES != 0);
    let parts = u32::try_from(read(&mut rest, units_wide)?).ok()?;
    let basis = Basis { algorithm, units, micros };
    if !rest.is_empty() || parts >= units || whole_at >= END || !basis.is_rate() {
        return None;
    }
    let full_at = FullAt::new(Span { micros: whole_at, parts }, owes);
    let state = if algorithm == Algorithm::TokenBucket {
        State::TokenBucket(token_bucket::State(full_at))
    } else {
        State::LeakyBucket(leaky_bucket::State(full_at))
    };
    Some(Counter::of(basis, state))
}

fn read_fixed_window(mut rest: &[u8]) -> Option<State> {
    let start = read(&mut rest, MOMENT).filter(|start| *start < END)?;
    let count = read_all(rest)?;
    Some(State::FixedWindow(fixed_window::State { start, count }))
}

fn read_sliding_window(mut rest: &[u8], period: u64) -> Option<State> {
    let index = read(&mut rest, INDEX)?;
    if !rest.len().is_multiple_of(2) || index >= END / period {
        return None;
    }
    let (previous, current) = rest.split_at(rest.len() / 2);
    let (previous, current) = (read_all(previous)?, read_all(current)?);
    Some(State::SlidingWindow(sliding_window::State { index, previous, current }))
}

fn read_log(mut rest: &[u8], costs: usize) -> Option<State> {
    let total = read(&mut rest, TOTAL)?;
    let entries = rest.chunks_exact(MOMENT + costs);
    if !entries.remainder().is_empty() {
        return None;
    }
    let entries = entries.map(|entry| {
        let (at, cost) = entry.split_at(MOMENT);
        (number(at), number(cost) as u32)
    });
    let entries =
        entries.skip_while(|entry| *entry == (0, 0)).take_while(|(at, cost)| *at < END || *cost > 0);
    let log = sliding_log::State::from_entries(entries);
    let in_order = log.entries().is_sorted_by_key(|(at, _)| at);
    let in_time = log.entries().last().is_none_or(|(at, _)| at < END);
    (log.total() == total && in_order && in_time).then_some(State::SlidingLog(log))
}

/// How many bytes a number takes; at least one.
fn width(number: u64) -> usize {
    (64 - number.leading_zeros()).div_ceil(8).max(1) as usize
}

fn units_width(units: u32) -> usize {
    if units == 1 { 0 } else { width(units.into()) }
}

fn write(bytes: &mut Vec<u8>, number: u64, width: usize) {
    bytes.extend_from_slice(&number.to_le_bytes()[..width]);
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn read(rest: &mut &[u8], width: usize) -> Option<u64> {
    let (bytes, after) = rest.split_at_checked(width)?;
    *rest = after;
    Some(number(bytes))
}

fn read_byte(rest: &mut &[u8]) -> Option<u8> {
    let (byte, after) = rest.split_first()?;
    *rest = after;
    Some(*byte)
}

/// A count of 1 to 4 bytes.
fn read_all(bytes: &[u8]) -> Option<u32> {
    matches!(bytes.len(), 1..=4).then(|| number(bytes) as u32)
}

#[cfg(test)]
mod tests;
