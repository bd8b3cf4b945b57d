//! `X-RateLimit-Limit`, `-Remaining` and `-Reset`, as most services send them and most clients read them:
//! the reset in Unix seconds.

use http::{HeaderMap, HeaderName};
use ratekeeper_core::{Decision, Outcome};

use super::number;

pub(crate) const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
pub(crate) const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
pub(crate) const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Writes the three fields of a decision's tightest rule, unless an inner layer has written those of a tighter
/// one. They are either all of this rule, or all left as they were.
pub(crate) fn write(decision: &Decision, headers: &mut HeaderMap) {
    let Some((_, outcome)) = decision.tightest() else { return };
    if yields(outcome, headers) {
        return;
    }
    for field in 0..3 {
        let (name, n) = match field {
            0 => (REMAINING, outcome.remaining().into()),
            1 => (LIMIT, outcome.limit().into()),
            _ => (RESET, outcome.reset_at(decision.at()).as_secs_ceil()),
        };
        // A full map, with thousands of fields, has none of them.
        if headers.try_insert(name, number(n)).is_err() {
            for name in [LIMIT, REMAINING, RESET] {
                headers.remove(name);
            }
            return;
        }
    }
}

/// Whether the fields of an inner layer take precedence.
fn yields(outcome: &Outcome, headers: &HeaderMap) -> bool {
    // Mostly there are few fields, and looking at them is faster than looking one up.
    let get = |name: HeaderName| headers.iter().find(|(field, _)| **field == name).map(|(_, value)| value);
    let Some(inner) = get(REMAINING) else { return false };
    let inner = inner.to_str().ok().and_then(|text| text.parse::<u32>().ok());
    let is_tighter = outcome.is_admitted() && inner.is_some_and(|inner| inner <= outcome.remaining());
    is_tighter && get(LIMIT).is_some() && get(RESET).is_some()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::HeaderValue;
    use ratekeeper_core::{RuleName, Timestamp};

    use super::*;

    fn decision(remaining: u32) -> Decision {
        let outcome = Outcome::admitted(9, remaining, Duration::from_secs(5), Duration::ZERO, Duration::ZERO);
        Decision::one(Timestamp::UNIX_EPOCH, RuleName::new("rule").unwrap(), outcome)
    }

    fn fields(headers: &HeaderMap) -> Vec<(&str, &str)> {
        headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect()
    }

    fn map(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn written(remaining: u32, before: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = map(before);
        write(&decision(remaining), &mut headers);
        headers
    }

    const OWN: [(&str, &str); 3] =
        [("x-ratelimit-remaining", "3"), ("x-ratelimit-limit", "9"), ("x-ratelimit-reset", "5")];

    #[test]
    fn the_three_come_after_what_is_there_which_stays_as_it_is() {
        assert_eq!(fields(&written(3, &[])), OWN);
        let before = [("vary", "a"), ("vary", "b"), ("content-type", "text/plain")];
        let headers = written(3, &before);
        assert_eq!(fields(&headers)[..3], before);
        assert_eq!(fields(&headers)[3..], OWN);
    }

    #[test]
    fn what_there_is_of_the_three_is_replaced_with_all_its_lines() {
        for name in ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"] {
            for lines in [&[(name, "1")][..], &[(name, "1"), (name, "2")]] {
                assert_eq!(written(3, lines), map(&OWN), "{lines:?}");
            }
        }
        let rest = [("x-ratelimit-limit", "1"), ("x-ratelimit-reset", "1")];
        assert_eq!(written(3, &rest), map(&OWN));
    }

    #[test]
    fn a_tighter_rule_stands_if_it_has_all_three() {
        let inner = [("x-ratelimit-remaining", "2"), ("x-ratelimit-limit", "4"), ("x-ratelimit-reset", "1")];
        assert_eq!(fields(&written(3, &inner)), inner);
        assert_eq!(written(1, &inner)["x-ratelimit-remaining"], "1");
        assert_eq!(written(1, &inner)["x-ratelimit-limit"], "9");
        assert_eq!(written(3, &inner[..2]), map(&OWN));
    }

    /// Tries room for none, for one and for two of them.
    #[test]
    fn a_map_that_is_full_has_none_of_them() {
        let mut full = HeaderMap::new();
        let mut next = 0;
        let mut fill = |headers: &mut HeaderMap| loop {
            let name = HeaderName::try_from(format!("x-{next}")).unwrap();
            next += 1;
            if headers.try_insert(name, HeaderValue::from_static("")).is_err() {
                break;
            }
        };
        fill(&mut full);
        let len = full.len();
        assert!(len > 1_000);
        for room in 0..3 {
            let mut headers = full.clone();
            let names: Vec<HeaderName> = headers.keys().take(room).cloned().collect();
            names.iter().for_each(|name| drop(headers.remove(name)));
            write(&decision(3), &mut headers);
            assert_eq!(headers.len(), len - room);
            assert!(!OWN.iter().any(|(name, _)| headers.contains_key(*name)), "room for {room}");
        }
    }
}
