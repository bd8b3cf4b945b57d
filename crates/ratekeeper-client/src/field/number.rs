//! Numbers and durations as services write them.

use std::time::{Duration, SystemTime};

use super::Time;

/// From this value on, a number is a point in time in Unix seconds: September 2001, or 31 years.
const UNIX_SECONDS: f64 = 1e9;
/// From this value on, a number is a point in time in Unix milliseconds: March 1973, or 3,168 years.
const UNIX_MILLIS: f64 = 1e11;

/// A plain decimal number that is not negative, such as `12` or `0.5`. No sign, no exponent.
pub(super) fn decimal(text: &str) -> Option<f64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let is_number = is_plain && text.starts_with(|c: char| c.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// A count. What is beyond `u64` saturates.
pub(super) fn count(text: &str) -> Option<u64> {
    decimal(text).map(|n| n as u64)
}

/// Seconds as a duration. Saturates.
pub(super) fn seconds(n: f64) -> Duration {
    Duration::try_from_secs_f64(n).unwrap_or(Duration::MAX)
}

/// How long until a reset, in whichever unit it is written: seconds from now, Unix seconds, Unix milliseconds,
/// or a text such as `6m0s`.
pub(super) fn reset(text: &str, now: Time) -> Option<Duration> {
    let Some(n) = decimal(text) else { return spelled(text) };
    let at = if n >= UNIX_MILLIS {
        seconds(n / 1_000.0)
    } else if n >= UNIX_SECONDS {
        seconds(n)
    } else {
        return Some(seconds(n));
    };
    Some(SystemTime::UNIX_EPOCH.checked_add(at).map_or(Duration::MAX, |at| now.until(at)))
}

/// A duration as Go writes it: `1s`, `6m0s`, `1h2m3.5s`, `20ms`.
fn spelled(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let end = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let scale = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        total = total.saturating_add(seconds(decimal(number)? * scale));
        rest = tail;
    }
    (!text.is_empty()).then_some(total)
}
