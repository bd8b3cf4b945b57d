//! Durations as people write them.

use std::time::Duration;

use ratekeeper::Quota;

use crate::suggest::did_you_mean;

/// Why a text is not a duration, and what may have been meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NoDuration {
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

/// The names of the units, the same as in a quota's text.
pub(crate) fn units() -> impl Iterator<Item = &'static str> {
    Quota::units().map(|(unit, _)| unit)
}

/// A duration: `500ms`, `30 s`, `1h 30m`, or a unit alone, which means one of it.
pub(crate) fn parse(text: &str) -> Result<Duration, NoDuration> {
    let wrong = |reason: &str, help: Option<String>| NoDuration {
        message: format!("`{text}` is no length of time: {reason}"),
        help: help.or_else(|| Some("write it like `500ms`, `30s`, `1h 30m` or `minute`".to_owned())),
    };
    let mut rest = text.trim_matches(' ');
    if rest.is_empty() {
        return Err(wrong("there is nothing", None));
    }
    let mut micros = Some(0_u64);
    while !rest.is_empty() {
        let (digits, after) = split(rest, |c| c.is_ascii_digit());
        let (unit, after) = split(after.trim_start_matches(' '), char::is_alphabetic);
        if unit.is_empty() {
            let reason = match (digits.is_empty(), after.chars().next()) {
                (true, Some(c)) => format!("there is {c:?} where a number was expected"),
                (false, Some(c)) => format!("there is {c:?} where the unit of {digits} was expected"),
                _ => format!("{digits} has no unit"),
            };
            return Err(wrong(&reason, None));
        }
        let Some((_, each)) = Quota::units().find(|(name, _)| *name == unit) else {
            return Err(wrong(&format!("there is no unit `{unit}`"), did_you_mean(unit, units())));
        };
        // A number that does not fit is beyond all bounds.
        let count = if digits.is_empty() { Some(1) } else { digits.parse().ok() };
        let part = count.and_then(|count: u64| count.checked_mul(each.as_micros() as u64));
        micros = micros.zip(part).and_then(|(sum, part)| sum.checked_add(part));
        rest = after.trim_start_matches(' ');
    }
    micros.map(Duration::from_micros).ok_or_else(|| wrong("it is too long", None))
}

fn split(text: &str, belongs: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !belongs(c)).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_is_read_as_people_write_it() {
        for (text, micros) in [
            ("500ms", 500_000),
            (" 30 s ", 30_000_000),
            ("minute", 60_000_000),
            ("1h 30m", 5_400_000_000),
            ("1h30m", 5_400_000_000),
            ("2 weeks", 14 * 86_400_000_000),
            ("250us", 250),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_micros(micros)), "{text}");
        }
    }

    #[test]
    fn what_is_none_is_refused_with_what_may_have_been_meant() {
        for (text, message, help) in [
            ("", "there is nothing", "write it like"),
            ("30", "30 has no unit", "write it like"),
            ("1.5s", "there is '.' where the unit of 1 was expected", "write it like"),
            ("\u{a0}1s", "there is '\\u{a0}' where a number was expected", "write it like"),
            ("1\u{2003}s", "there is '\\u{2003}' where the unit of 1 was expected", "write it like"),
            ("1s\t", "there is '\\t' where a number was expected", "write it like"),
            ("-1s", "there is '-' where a number was expected", "write it like"),
            ("2 minuets", "there is no unit `minuets`", "did you mean `minutes`?"),
            ("5 fortnights", "there is no unit `fortnights`", "write it like"),
            ("99999999999999999999s", "it is too long", "write it like"),
            ("18446744073709551615 weeks", "it is too long", "write it like"),
            ("18446744073709551615us 1us", "it is too long", "write it like"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.message.ends_with(message), "{error:?}");
            assert!(error.help.as_deref().unwrap().starts_with(help), "{error:?}");
        }
    }
}
