//! A quota as clients see it, in `RateLimit-Policy` of draft-ietf-httpapi-ratelimit-headers-11.

use std::time::Duration;

use http::HeaderValue;
use ratekeeper_core::{Algorithm, Quota, RuleName};

/// The largest integer of a structured field (RFC 9651, section 3.3.1).
pub(crate) const MAX_INTEGER: u64 = 999_999_999_999_999;

/// The member of `RateLimit-Policy` for a rule with this quota: the most that it holds, and how long that
/// takes to come back.
pub(super) fn policy(rule: RuleName, quota: &Quota) -> HeaderValue {
    let window = match quota.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => quota.full_refill(),
        _ => quota.period(),
    };
    member(format!("\"{rule}\";q={};w={}", quota.max(), seconds(window).min(MAX_INTEGER)))
}

/// A member of a list. A rule's name contains only characters that are allowed in a string of a structured
/// field.
pub(crate) fn member(text: String) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// A wait in whole seconds, at least one. Rounded up, because a client that comes too early is denied again.
pub(crate) fn seconds(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1)
}
