//! Three separate fields for limit, remaining and reset, as services have sent them since before the draft.
//!
//! | family | reset |
//! |---|---|
//! | `X-RateLimit-*` (GitHub, Discord, and most others) | Unix seconds, Unix milliseconds, or seconds left |
//! | `X-Rate-Limit-*` | the same |
//! | `RateLimit-*` (drafts 2 to 6) | seconds left; GitLab sends Unix seconds |
//! | `X-RateLimit-*-Requests` | a duration such as `6m0s` |

use std::time::Duration;

use http::{HeaderMap, HeaderName};

use super::{LimitReport, Time, first, ietf, number};

struct Family {
    limit: HeaderName,
    remaining: HeaderName,
    reset: HeaderName,
}

const fn name(text: &'static str) -> HeaderName {
    HeaderName::from_static(text)
}

/// In the order of preference.
static FAMILIES: [Family; 4] = [
    Family {
        limit: name("x-ratelimit-limit"),
        remaining: name("x-ratelimit-remaining"),
        reset: name("x-ratelimit-reset"),
    },
    Family {
        limit: name("ratelimit-limit"),
        remaining: name("ratelimit-remaining"),
        reset: name("ratelimit-reset"),
    },
    Family {
        limit: name("x-rate-limit-limit"),
        remaining: name("x-rate-limit-remaining"),
        reset: name("x-rate-limit-reset"),
    },
    Family {
        limit: name("x-ratelimit-limit-requests"),
        remaining: name("x-ratelimit-remaining-requests"),
        reset: name("x-ratelimit-reset-requests"),
    },
];

/// Discord's, in seconds and fractions. Finer than the reset, and independent of clocks.
const RESET_AFTER: HeaderName = HeaderName::from_static("x-ratelimit-reset-after");

/// The limit of the first family that says how much remains.
pub(super) fn limit(headers: &HeaderMap, now: Time) -> Option<LimitReport> {
    FAMILIES.iter().find_map(|family| read(family, headers, now))
}

fn read(family: &Family, headers: &HeaderMap, now: Time) -> Option<LimitReport> {
    let remaining = first(headers, &family.remaining).and_then(number::count)?;
    let reset_after = first(headers, &RESET_AFTER).and_then(number::decimal).map(number::seconds);
    let reset = reset_after.or_else(|| number::reset(first(headers, &family.reset)?, now));
    let quota = quota(headers, &family.limit);
    let window = quota.and_then(|quota| window(headers, &family.limit, quota));
    Some(LimitReport { name: String::new(), quota, window, remaining: Some(remaining), reset })
}

/// The limit, which draft 3 follows by policies: `10, 10;w=1, 50;w=60`.
fn quota(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    first(headers, name)?.split([',', ';']).next().map(str::trim).and_then(number::count)
}

fn window(headers: &HeaderMap, name: &HeaderName, quota: u64) -> Option<Duration> {
    let in_limit = || ietf::list(headers, name).and_then(|policies| ietf::window_in(&policies, quota));
    in_limit().or_else(|| ietf::window_of(headers, quota))
}
