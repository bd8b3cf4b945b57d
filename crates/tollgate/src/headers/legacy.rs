//! `X-RateLimit-Limit`, `-Remaining` and `-Reset`, as most services send them and most clients read them:
//! the reset in Unix seconds.

use http::{HeaderMap, HeaderName, HeaderValue};
use tollgate_core::{Decision, Outcome, Timestamp};

use super::number::{limit, number, time};

pub(crate) const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
pub(crate) const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
pub(crate) const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// What the three say: the figures of the tightest rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trio {
    pub(crate) limit: u32,
    pub(crate) remaining: u32,
    /// In Unix seconds.
    pub(crate) reset: u64,
    pub(crate) is_denial: bool,
}

impl Trio {
    #[inline]
    pub(crate) fn new(at: Timestamp, outcome: &Outcome) -> Self {
        Self {
            limit: outcome.limit(),
            remaining: outcome.remaining(),
            reset: outcome.reset_at(at).as_secs_ceil(),
            is_denial: !outcome.is_admitted(),
        }
    }

    /// Those of a decision's tightest rule. If any denies, that one does.
    #[inline]
    pub(crate) fn of(decision: &Decision) -> Option<Self> {
        decision.tightest().map(|(_, outcome)| Self::new(decision.at(), outcome))
    }

    /// Writes the three, unless an inner layer has written those of a tighter rule. Either they are all of this rule, or all of
    /// what was there.
    #[inline(always)]
    pub(crate) fn write(self, headers: &mut HeaderMap) {
        // A map that is full, with thousands of fields, stays as it is.
        match headers.try_insert(REMAINING, number(self.remaining.into())) {
            Ok(None) => {}
            Ok(Some(inner)) if !self.yields(&inner, headers) => {}
            Ok(Some(inner)) => return drop(headers.try_insert(REMAINING, inner)),
            Err(_) => return,
        }
        let has_limit = headers.try_insert(LIMIT, limit(self.limit)).is_ok();
        if headers.try_insert(RESET, time(self.reset)).is_err() || !has_limit {
            remove(headers);
        }
    }

    /// Whether what an inner layer says remains is to stand.
    #[cold]
    fn yields(self, inner: &HeaderValue, headers: &HeaderMap) -> bool {
        let inner = inner.to_str().ok().and_then(|text| text.parse::<u32>().ok());
        let is_tighter = !self.is_denial && inner.is_some_and(|inner| inner <= self.remaining);
        is_tighter && headers.contains_key(LIMIT) && headers.contains_key(RESET)
    }
}

/// Where there is not enough room for the three, there is none of them.
#[cold]
fn remove(headers: &mut HeaderMap) {
    for field in [LIMIT, REMAINING, RESET] {
        headers.remove(field);
    }
}
