//! `X-RateLimit-Limit`, `-Remaining` and `-Reset`, as most services send them and most clients read them:
//! the reset in Unix seconds.

use http::{HeaderMap, HeaderName};
use tollgate_core::Decision;

use super::number;

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Writes the three for the tightest rule, unless an inner layer has written those of a tighter one.
pub(super) fn write(decision: &Decision, headers: &mut HeaderMap) {
    let Some((_, outcome)) = decision.tightest() else { return };
    let inner = headers.get(&REMAINING).and_then(|value| value.to_str().ok()?.parse::<u32>().ok());
    if decision.is_admitted() && inner.is_some_and(|inner| inner <= outcome.remaining()) {
        return;
    }
    let reset = decision.at().saturating_add(outcome.reset_after());
    headers.insert(LIMIT, number(outcome.limit().into()));
    headers.insert(REMAINING, number(outcome.remaining().into()));
    headers.insert(RESET, number(reset.as_secs_ceil()));
}
