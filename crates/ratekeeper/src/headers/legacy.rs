//! `X-RateLimit-Limit`, `-Remaining` and `-Reset`, as most services send them and most clients read them:
//! the reset in Unix seconds.

use http::header::MaxSizeReached;
use http::{HeaderMap, HeaderName, HeaderValue};
use ratekeeper_core::{Decision, Outcome, Timestamp};

use super::number::{limit, number, time};

pub(crate) const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
pub(crate) const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
pub(crate) const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// The values of the three fields: the figures of the tightest rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trio {
    pub(crate) at: Timestamp,
    pub(crate) outcome: Outcome,
}

impl Trio {
    /// The figures of a decision's tightest rule. If any rule denies, the tightest one does.
    #[inline]
    pub(crate) fn of(decision: &Decision) -> Option<Self> {
        decision.tightest().map(|(_, outcome)| Self { at: decision.at(), outcome: *outcome })
    }

    #[inline(always)]
    pub(crate) fn limit(&self) -> HeaderValue {
        limit(self.outcome.limit())
    }

    #[inline(always)]
    pub(crate) fn remaining(&self) -> HeaderValue {
        number(self.outcome.remaining().into())
    }

    /// In Unix seconds.
    #[inline(always)]
    pub(crate) fn reset(&self) -> HeaderValue {
        time(self.outcome.reset_at(self.at).as_secs_ceil())
    }

    /// Writes the three fields, unless an inner layer has written those of a tighter rule. They are either
    /// all of this rule, or all left as they were.
    // Inserting a field is a long function, and calling it three times is a good part of the cost. The
    // compiler inlines it into this loop if nothing else calls it. So everything else in this crate inserts
    // by a reference to the name, which is another function, and fields are looked up here by their text,
    // because the hash function would be shared.
    #[inline(never)]
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        for field in 0..3 {
            let (name, value) = match field {
                0 => (REMAINING, self.remaining()),
                1 => (LIMIT, self.limit()),
                _ => (RESET, self.reset()),
            };
            match headers.try_insert(name, value) {
                Ok(None) => {}
                before if field == 0 => return self.write_over(before, headers),
                _ => return self.write_rest(headers),
            }
        }
    }

    /// Writes the three fields if the first one was already present, or had no room.
    #[cold]
    #[inline(never)]
    fn write_over(&self, before: Result<Option<HeaderValue>, MaxSizeReached>, headers: &mut HeaderMap) {
        match before {
            Ok(Some(inner)) if self.yields(&inner, headers) => drop(headers.try_insert(&REMAINING, inner)),
            Ok(_) => self.write_rest(headers),
            // A full map, with thousands of fields, is left unchanged.
            Err(_) => {}
        }
    }

    /// Writes the other two, whatever was there. If there is not enough room for all three, none is written.
    #[cold]
    #[inline(never)]
    fn write_rest(&self, headers: &mut HeaderMap) {
        let has_limit = headers.try_insert(&LIMIT, self.limit()).is_ok();
        if headers.try_insert(&RESET, self.reset()).is_err() || !has_limit {
            for field in [LIMIT, REMAINING, RESET] {
                headers.remove(field.as_str());
            }
        }
    }

    /// Whether the fields of an inner layer take precedence.
    fn yields(&self, inner: &HeaderValue, headers: &HeaderMap) -> bool {
        let inner = inner.to_str().ok().and_then(|text| text.parse::<u32>().ok());
        let is_tighter =
            self.outcome.is_admitted() && inner.is_some_and(|inner| inner <= self.outcome.remaining());
        let has = |field: HeaderName| headers.keys().any(|name| *name == field);
        is_tighter && has(LIMIT) && has(RESET)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn trio(remaining: u32) -> Trio {
        let outcome = Outcome::admitted(9, remaining, Duration::from_secs(5), Duration::ZERO, Duration::ZERO);
        Trio { at: Timestamp::UNIX_EPOCH, outcome }
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
        trio(remaining).write(&mut headers);
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
            trio(3).write(&mut headers);
            assert_eq!(headers.len(), len - room);
            assert!(!OWN.iter().any(|(name, _)| headers.contains_key(*name)), "room for {room}");
        }
    }
}
