//! `X-RateLimit-Limit`, `-Remaining` and `-Reset`, as most services send them and most clients read them:
//! the reset in Unix seconds.

use http::{HeaderMap, HeaderName};
use tollgate_core::Decision;

use super::number::{number, unix_seconds};

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// What the three say: the figures of the tightest rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trio {
    limit: u32,
    remaining: u32,
    reset: u64,
    is_denial: bool,
}

impl Trio {
    pub(super) fn new(decision: &Decision) -> Option<Self> {
        let (_, outcome) = decision.tightest()?;
        Some(Self {
            limit: outcome.limit(),
            remaining: outcome.remaining(),
            reset: outcome.reset_at(decision.at()).as_secs_ceil(),
            is_denial: !decision.is_admitted(),
        })
    }

    /// Writes the three, unless an inner layer has written those of a tighter rule, such as one that denied.
    pub(super) fn write(self, headers: &mut HeaderMap, denied_within: bool) {
        if denied_within && headers.contains_key(REMAINING) {
            return;
        }
        if let Some(inner) = headers.insert(REMAINING, number(self.remaining.into())) {
            let remaining = inner.to_str().ok().and_then(|text| text.parse::<u32>().ok());
            if !self.is_denial && remaining.is_some_and(|remaining| remaining <= self.remaining) {
                headers.insert(REMAINING, inner);
                return;
            }
        }
        headers.insert(LIMIT, number(self.limit.into()));
        headers.insert(RESET, unix_seconds(self.reset));
    }
}
