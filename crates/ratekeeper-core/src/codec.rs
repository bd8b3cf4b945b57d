//! A counter as bytes, for stores outside the process.
//!
//! All numbers are little-endian and unsigned. First comes the head, which is the identity of the quota: two
//! quotas have the same head if and only if a count under one is a count under the other.
//!
//! | bytes | |
//! |---|---|
//! | 1 | algorithm + 5 × form, the algorithms being numbered as in [`Algorithm::ALL`] |
//! | buckets: *m*, 1 to 7 | microseconds of the rate in lowest terms; form = (*m* − 1) + 7 × *u* |
//! | buckets: *u*, 0 to 4 | units of the rate; none means one |
//! | buckets with one unit: *m*, 1 to 6 | milliseconds of the rate, if they are whole; form = 35 + (*m* − 1) |
//! | others: 0 or 7 | period in microseconds, if the form is 4; a form of 0 to 3 is a second, minute, hour or day |
//! | 1 to 5 | how much the quota holds, seven bits to a byte (LEB128) |
//!
//! Then what was counted:
//!
//! | | bytes | |
//! |---|---|---|
//! | buckets | 7 | the microsecond at which the budget is full, plus 2⁵⁵ if that takes longer than a full refill |
//! | | *u* | parts of a microsecond; as many make one as the rate has units |
//! | fixed window | 7 | the microsecond at which the window starts |
//! | | 1 to 4 | count |
//! | sliding window | 6 | number of the window |
//! | | 1 to 4, twice | count of the window before, count of this one |
//! | sliding log | 1 | *w*, 1 to 4 |
//! | | 4 | cost of all entries |
//! | | 4, twice | the place of the first entry, counted from zero; how many entries there are |
//! | | 7 + *w*, each | places: moment and cost of an entry, oldest first. Those before and after the entries mean nothing, so that a store can change a long log where it is |
//!
//! With a previous state:
//!
//! | bytes | |
//! |---|---|
//! | 1 | 255 |
//! | 4 | how many bytes the current counter takes |
//! | | the counter of the current quota |
//! | | the counter of the previous quota |
//!
//! Most counters are 14 bytes or less.

use std::time::Duration;

use crate::algorithm::gcra::Bucket;
use crate::algorithm::log::Log;
use crate::algorithm::window::{FixedWindow, SlidingWindow};
use crate::algorithm::{Counted, Counter, State};
use crate::quota::{Span, gcd};
use crate::{Algorithm, DAY, HOUR, MINUTE, Quota, SECOND};

/// The periods that have their own form.
const PERIODS: [Duration; 4] = [SECOND, MINUTE, HOUR, DAY];
/// The form of a period that is written out.
const WRITTEN_OUT: usize = PERIODS.len();
const ALGORITHMS: usize = Algorithm::ALL.len();
/// The first form for a rate of one unit per whole number of milliseconds.
const MILLIS: usize = 35;
/// No moment is as late as this: moments are exact in floating point.
const END: u64 = 1 << 53;
/// The first byte of two counters. No single counter begins with it.
const TWO: u8 = u8::MAX;
/// The width of a counter's length.
const LENGTH: usize = 4;
/// Added to the moment at which a budget is full that takes longer than a full refill: the last bit of a
/// moment's bytes.
const BEYOND: u64 = 1 << 55;
/// The width of a moment.
const MOMENT: usize = 7;
/// The width of a window's number: enough for windows of a millisecond.
const INDEX: usize = 6;
/// The width of the cost of a whole log.
const TOTAL: usize = 4;
/// The width of the place of an entry.
const PLACE: usize = 4;
/// The shortest period that a quota has.
const SHORTEST: u64 = 1_000;

/// The leading bytes of a counter that was counted under this quota.
///
/// ```
/// use ratekeeper_core::{Quota, codec};
///
/// // However it is written, it counts the same.
/// let head = codec::head(&Quota::per_minute(60));
/// assert_eq!(head, codec::head(&Quota::per_second(1).burst(60)));
/// assert_ne!(head, codec::head(&Quota::per_minute(60).burst(61)));
/// ```
#[must_use]
pub fn head(quota: &Quota) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16);
    write_head(&mut bytes, quota);
    bytes
}

/// The counter as bytes.
#[must_use]
pub fn encode(counter: &Counter) -> Vec<u8> {
    let current = encode_one(&counter.current);
    let Some(previous) = &counter.previous else {
        return current;
    };
    let mut bytes = vec![TWO];
    write(&mut bytes, current.len() as u64, LENGTH);
    bytes.extend(current);
    bytes.extend(encode_one(previous));
    bytes
}

/// The counter with these bytes; `None` if they are not those of a counter.
#[must_use]
pub fn decode(bytes: &[u8]) -> Option<Counter> {
    let [TWO, rest @ ..] = bytes else {
        return Some(Counter { current: decode_one(bytes)?, previous: None });
    };
    let mut rest = rest;
    let length = read(&mut rest, LENGTH)? as usize;
    let (current, previous) = rest.split_at_checked(length)?;
    let (current, previous) = (decode_one(current)?, decode_one(previous)?);
    let differ = !current.quota.counts_like(&previous.quota);
    differ.then(|| Counter { current, previous: Some(Box::new(previous)) })
}

fn encode_one(counted: &Counted) -> Vec<u8> {
    let mut bytes = head(&counted.quota);
    match &counted.state {
        State::Bucket(bucket) => {
            let Span { micros, parts } = bucket.full_at();
            write(&mut bytes, if bucket.is_beyond() { micros | BEYOND } else { micros }, MOMENT);
            write(&mut bytes, parts.into(), units_width(counted.quota.rate_units()));
        }
        State::FixedWindow(window) => {
            write(&mut bytes, window.start, MOMENT);
            write(&mut bytes, window.count.into(), width(window.count.into()));
        }
        State::SlidingWindow(window) => {
            write(&mut bytes, window.index, INDEX);
            let width = width(window.previous.max(window.current).into());
            write(&mut bytes, window.previous.into(), width);
            write(&mut bytes, window.current.into(), width);
        }
        State::Log(log) => {
            let width = log.entries().map(|(_, cost)| width(cost.into())).max().unwrap_or(1);
            write(&mut bytes, width as u64, 1);
            write(&mut bytes, log.total(), TOTAL);
            write(&mut bytes, 0, PLACE);
            write(&mut bytes, log.entries().count() as u64, PLACE);
            for (at, cost) in log.entries() {
                write(&mut bytes, at, MOMENT);
                write(&mut bytes, cost.into(), width);
            }
        }
    }
    bytes
}

fn write_head(bytes: &mut Vec<u8>, quota: &Quota) {
    let (algorithm, (units, micros)) = (quota.algorithm(), quota.rate());
    // At most 4 + 5 × 40.
    let tag = |form: usize| (algorithm as usize + ALGORITHMS * form) as u8;
    if !is_bucket(algorithm) {
        let form = PERIODS.iter().position(|period| *period == quota.period()).unwrap_or(WRITTEN_OUT);
        bytes.push(tag(form));
        if form == WRITTEN_OUT {
            write(bytes, quota.period_micros(), MOMENT);
        }
    } else if units == 1 && micros.is_multiple_of(1_000) {
        let wide = width(micros / 1_000);
        bytes.push(tag(MILLIS + wide - 1));
        write(bytes, micros / 1_000, wide);
    } else {
        let wide = width(micros);
        bytes.push(tag(wide - 1 + MOMENT * units_width(units)));
        write(bytes, micros, wide);
        write(bytes, units.into(), units_width(units));
    }
    let mut max = quota.max();
    while max >= 0x80 {
        bytes.push(max as u8 | 0x80);
        max >>= 7;
    }
    bytes.push(max as u8);
}

fn decode_one(mut rest: &[u8]) -> Option<Counted> {
    let quota = read_head(&mut rest)?;
    let state = match quota.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => State::Bucket(read_bucket(rest, &quota)?),
        Algorithm::FixedWindow => {
            let start = read(&mut rest, MOMENT).filter(|start| *start < END)?;
            State::FixedWindow(FixedWindow { start, count: read_all(rest)? })
        }
        Algorithm::SlidingWindow => {
            let index = read(&mut rest, INDEX).filter(|index| *index < END / quota.period_micros())?;
            let (previous, current) = rest.split_at(rest.len() / 2);
            let (previous, current) = (read_all(previous)?, read_all(current)?);
            (rest.len().is_multiple_of(2)).then_some(State::SlidingWindow(SlidingWindow {
                index,
                previous,
                current,
            }))?
        }
        Algorithm::SlidingLog => State::Log(read_log(rest)?),
    };
    Some(Counted { quota, state })
}

fn read_head(rest: &mut &[u8]) -> Option<Quota> {
    let tag = read(rest, 1)? as usize;
    let (algorithm, form) = (Algorithm::ALL[tag % ALGORITHMS], tag / ALGORITHMS);
    let quota = if is_bucket(algorithm) {
        let (wide, units_wide, scale) = match form.checked_sub(MILLIS) {
            Some(wide) if wide < 6 => (wide + 1, 0, 1_000),
            Some(_) => return None,
            None => (form % MOMENT + 1, form / MOMENT, 1),
        };
        let micros = (read(rest, wide)? * scale).min(END);
        let units = if units_wide == 0 { 1 } else { u32::try_from(read(rest, units_wide)?).ok()? };
        if micros == 0 || gcd(units.into(), micros) != 1 {
            return None;
        }
        // A period in lowest terms may be shorter than that of any quota.
        let times = SHORTEST.div_ceil(micros) as u32;
        let (limit, period) = (units.checked_mul(times)?, Duration::from_micros(micros) * times);
        let max = read_max(rest)?;
        if algorithm == Algorithm::TokenBucket {
            Quota::token_bucket(limit, period).burst(max)
        } else {
            Quota::leaky_bucket(limit, period).capacity(max)
        }
    } else {
        let period = match form {
            WRITTEN_OUT => Duration::from_micros(read(rest, MOMENT)?),
            form => *PERIODS.get(form)?,
        };
        let max = read_max(rest)?;
        match algorithm {
            Algorithm::FixedWindow => Quota::fixed_window(max, period),
            Algorithm::SlidingWindow => Quota::sliding_window(max, period),
            _ => Quota::sliding_log(max, period),
        }
    };
    quota.check().ok().map(|()| quota)
}

fn read_max(rest: &mut &[u8]) -> Option<u32> {
    let mut max = 0;
    for shift in (0..35).step_by(7) {
        let byte = read(rest, 1)?;
        max |= (byte & 0x7f) << shift;
        if byte < 0x80 {
            return u32::try_from(max).ok();
        }
    }
    None
}

fn read_bucket(mut rest: &[u8], quota: &Quota) -> Option<Bucket> {
    let (marked, units) = (read(&mut rest, MOMENT)?, quota.rate_units());
    let parts = u32::try_from(read(&mut rest, units_width(units))?).ok()?;
    let full_at = Span { micros: marked & !BEYOND, parts };
    let valid = rest.is_empty() && parts < units && full_at.micros < END;
    valid.then(|| Bucket::new(full_at, marked & BEYOND != 0))
}

fn read_log(mut rest: &[u8]) -> Option<Log> {
    let width = read(&mut rest, 1).filter(|width| (1..=4).contains(width))? as usize;
    let total = read(&mut rest, TOTAL)?;
    let (first, count) = (read(&mut rest, PLACE)? as usize, read(&mut rest, PLACE)? as usize);
    let places = rest.chunks_exact(MOMENT + width);
    let end = first.checked_add(count).filter(|end| *end <= places.len());
    end.filter(|_| places.remainder().is_empty())?;
    let entries = places.skip(first).take(count).map(|entry| {
        let (at, cost) = entry.split_at(MOMENT);
        (number(at), number(cost) as u32)
    });
    let log = Log::from_entries(entries);
    let in_order = log.entries().is_sorted_by_key(|(at, _)| at);
    let in_time = log.entries().last().is_none_or(|(at, _)| at < END);
    (log.total() == total && in_order && in_time).then_some(log)
}

const fn is_bucket(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket)
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

/// A count of 1 to 4 bytes.
fn read_all(bytes: &[u8]) -> Option<u32> {
    matches!(bytes.len(), 1..=4).then(|| number(bytes) as u32)
}

#[cfg(test)]
mod tests;
