//! Quotas as text. The documentation of [`Quota`] has the grammar.
//!
//! A quota prints the way it was written, so its spelling is remembered; the spelling has no part in
//! equality.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::error::Problem;
use super::{Algorithm, ParseQuotaError, Quota};

/// Units by their spelling, with their microseconds.
const UNITS: [(&str, u64); 19] = [
    ("us", 1),
    ("ms", 1_000),
    ("s", SECOND),
    ("sec", SECOND),
    ("second", SECOND),
    ("seconds", SECOND),
    ("m", 60 * SECOND),
    ("min", 60 * SECOND),
    ("minute", 60 * SECOND),
    ("minutes", 60 * SECOND),
    ("h", 3_600 * SECOND),
    ("hr", 3_600 * SECOND),
    ("hour", 3_600 * SECOND),
    ("hours", 3_600 * SECOND),
    ("d", 86_400 * SECOND),
    ("day", 86_400 * SECOND),
    ("days", 86_400 * SECOND),
    ("week", 7 * 86_400 * SECOND),
    ("weeks", 7 * 86_400 * SECOND),
];
const SECOND: u64 = 1_000_000;
const US: u8 = 0;
const MS: u8 = 1;
/// The units for printing a period that was not parsed from text: long (for one) and short (for several).
const PREFERRED: [(u8, u8); 4] = [(15, 14), (12, 10), (8, 6), (4, 2)];

impl Quota {
    /// The units of time that a quota's text can use and their lengths, for other texts that use the same
    /// units.
    ///
    /// ```
    /// use ratekeeper_core::{MINUTE, Quota};
    ///
    /// assert!(Quota::units().any(|unit| unit == ("min", MINUTE)));
    /// ```
    pub fn units() -> impl ExactSizeIterator<Item = (&'static str, Duration)> {
        UNITS.into_iter().map(|(unit, micros)| (unit, Duration::from_micros(micros)))
    }
}

/// How a quota is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spelling {
    /// `100/minute` rather than `100 per minute`.
    slash: bool,
    /// `1minute` rather than `minute`.
    count: bool,
    /// An index into [`UNITS`] that divides the period.
    unit: u8,
    /// `token-bucket` is written although it is the default.
    algorithm: bool,
    /// The burst or capacity is written, even if it is the limit.
    capacity: bool,
    /// The nanoseconds that the period has beyond whole microseconds. Such a quota is invalid, and is written
    /// in a unit that is not parsed.
    nanos: u16,
}

impl Spelling {
    /// How a quota that was made in code is written: `100/minute`, but `5 per 30s`.
    pub(super) const fn of(period: Duration) -> Self {
        let micros = crate::time::micros_ceil(period);
        let nanos = (period.subsec_nanos() % 1_000) as u16;
        let mut spelling =
            Self { slash: false, count: true, unit: US, algorithm: false, capacity: false, nanos };
        if nanos > 0 {
            return spelling;
        }
        if micros.is_multiple_of(UNITS[MS as usize].1) {
            spelling.unit = MS;
        }
        let mut i = 0;
        while i < PREFERRED.len() {
            let (long, short) = PREFERRED[i];
            let unit = UNITS[long as usize].1;
            if micros == unit {
                return Self { slash: true, count: false, unit: long, ..spelling };
            }
            if micros.is_multiple_of(unit) && micros > 0 {
                return Self { unit: short, ..spelling };
            }
            i += 1;
        }
        spelling
    }

    pub(super) const fn with_capacity(self) -> Self {
        Self { capacity: true, ..self }
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spelling = &self.spelling;
        let (unit, micros) = UNITS[usize::from(spelling.unit)];
        write!(f, "{}{}", self.limit, if spelling.slash { "/" } else { " per " })?;
        if spelling.nanos > 0 {
            // The period has been rounded up.
            write!(f, "{}", u128::from(self.period.get() - 1) * 1_000 + u128::from(spelling.nanos))?;
        } else if spelling.count || self.period.get() != micros {
            write!(f, "{}", self.period.get() / micros)?;
        }
        f.write_str(if spelling.nanos > 0 { "ns" } else { unit })?;
        if spelling.algorithm || self.algorithm != Algorithm::TokenBucket {
            write!(f, " {}", self.algorithm)?;
        }
        if spelling.capacity {
            write!(f, " {} {}", capacity_word(self.algorithm), self.capacity)?;
        }
        Ok(())
    }
}

const fn capacity_word(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::LeakyBucket => "capacity",
        _ => "burst",
    }
}

impl FromStr for Quota {
    type Err = ParseQuotaError;

    /// Parses a [text](Quota#text) such as `100/minute` or `5 per 30s sliding-log`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map_err(|problem| ParseQuotaError { text: text.to_owned(), problem })
    }
}

fn parse(text: &str) -> Result<Quota, Problem> {
    let mut rest = text.trim_matches(' ');
    let limit = number(&mut rest)?;
    let is_spaced = spaces(&mut rest);
    let slash = match rest.strip_prefix('/') {
        Some(after) => {
            rest = after;
            spaces(&mut rest);
            true
        }
        None => match word(&mut rest) {
            "per" if is_spaced => false,
            found => return Err(expected("`/`, or a space and `per`, after the limit", found)),
        },
    };
    let count = match rest.starts_with(|c: char| c.is_ascii_digit()) {
        // A number that overflows is more than ten years in any unit, so it need not be exact.
        true => Some(digits(&mut rest)?.parse().unwrap_or(u64::MAX)),
        false => None,
    };
    spaces(&mut rest);
    let name = word(&mut rest);
    let Some(unit) = UNITS.iter().position(|(unit, _)| *unit == name) else {
        return Err(expected("a unit of time (ms, s, minute, hour, day, …)", name));
    };
    let period = Duration::from_micros(UNITS[unit].1.saturating_mul(count.unwrap_or(1)));

    let mut next = word(&mut rest);
    let algorithm = Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == next);
    if algorithm.is_some() {
        next = word(&mut rest);
    }
    let mut quota = Quota::new(algorithm.unwrap_or(Algorithm::TokenBucket), limit, period);
    quota.spelling = Spelling {
        slash,
        count: count.is_some(),
        unit: unit as u8,
        algorithm: algorithm.is_some(),
        capacity: false,
        nanos: 0,
    };
    match next {
        "" => {}
        "burst" => quota = quota.burst(number(&mut rest)?),
        "capacity" => quota = quota.capacity(number(&mut rest)?),
        found if algorithm.is_none() => {
            return Err(expected("an algorithm, `burst` or `capacity`", found));
        }
        found => return Err(expected("`burst` or `capacity`", found)),
    }
    spaces(&mut rest);
    if !rest.is_empty() {
        return Err(expected("nothing more", rest));
    }
    quota.check().map_err(Problem::Invalid)?;
    Ok(quota)
}

fn expected(what: &'static str, found: &str) -> Problem {
    Problem::Expected { what, found: found.to_owned() }
}

/// Takes a number from the start of `rest`.
fn number(rest: &mut &str) -> Result<u32, Problem> {
    let digits = digits(rest)?;
    digits.parse().map_err(|_| Problem::Number(digits.to_owned()))
}

fn digits<'a>(rest: &mut &'a str) -> Result<&'a str, Problem> {
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (digits, after) = rest.split_at(end);
    if digits.is_empty() {
        return Err(expected("a number", word(rest)));
    }
    *rest = after;
    Ok(digits)
}

/// Takes everything up to the next space, and the spaces after it.
fn word<'a>(rest: &mut &'a str) -> &'a str {
    let (word, after) = rest.split_at(rest.find(' ').unwrap_or(rest.len()));
    *rest = after;
    spaces(rest);
    word
}

/// Takes the spaces from the start of `rest`, and returns whether there are any.
fn spaces(rest: &mut &str) -> bool {
    let after = rest.trim_start_matches(' ');
    let any = after.len() < rest.len();
    *rest = after;
    any
}
