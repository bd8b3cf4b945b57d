//! Durations as people write them: `500ms`, `30s`, `5m`, `1h`.

use std::str::FromStr;
use std::time::Duration;

const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// Longer than anybody waits, and adding it to a point in time does not overflow.
const LONGEST: Duration = Duration::from_secs(365 * 86_400);

/// A duration above zero.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, millis)| *millis);
    let (Ok(number), Some(unit)) = (number.parse::<u64>(), unit) else {
        return Err("a time is a whole number and a unit: 500ms, 30s, 5m or 1h".to_owned());
    };
    match Duration::from_millis(number.saturating_mul(unit)) {
        Duration::ZERO => Err("in no time at all nothing can be done".to_owned()),
        time if time > LONGEST => Err("this is longer than a year".to_owned()),
        time => Ok(time),
    }
}

/// How long something may take, or `none` for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit(Option<Duration>);

impl Limit {
    pub(crate) const fn get(self) -> Option<Duration> {
        self.0
    }
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self(None)),
            text => parse(text).map(|time| Self(Some(time))).map_err(|error| format!("{error}; or none")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(parse("5ms"), Ok(Duration::from_millis(5)));
        assert_eq!(parse("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse("1h"), Ok(Duration::from_secs(3_600)));
        for wrong in ["", "5", "s", "-5s", "1.5s", "5 s", "5d", "0s", "99999999999999999999s", "9999999h"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_limit_may_be_none() {
        assert_eq!("none".parse(), Ok(Limit(None)));
        assert_eq!("5s".parse(), Ok(Limit(Some(Duration::from_secs(5)))));
        assert!("never".parse::<Limit>().is_err());
    }
}
