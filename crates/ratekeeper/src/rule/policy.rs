//! A quota as clients see it, in `RateLimit-Policy` of draft-ietf-httpapi-ratelimit-headers-11.

use std::time::Duration;

use http::HeaderValue;
use ratekeeper_core::{Algorithm, Quota, RuleName};

/// The largest integer of a structured field (RFC 9651, section 3.3.1).
pub(crate) const MAX_INTEGER: u64 = 999_999_999_999_999;

/// The member of `RateLimit-Policy` for a rule with this quota: how much may be used in which window.
///
/// For buckets the window is the time of a full refill. It is rounded up to whole seconds, and the quota is
/// what comes back in that window. A bucket of 20 that refills at 100 a second is 100 in a second, not 20.
pub(super) fn policy(rule: RuleName, quota: &Quota) -> HeaderValue {
    let (amount, window) = match quota.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let window = seconds(quota.full_refill());
            let (units, micros) = quota.rate();
            let amount = u128::from(window) * 1_000_000 * u128::from(units) / u128::from(micros);
            (u64::try_from(amount).unwrap_or(u64::MAX), window)
        }
        _ => (quota.max().into(), seconds(quota.period())),
    };
    member(format!("\"{rule}\";q={};w={}", amount.min(MAX_INTEGER), window.min(MAX_INTEGER)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_of_a_bucket_is_its_rate_even_if_it_fills_within_a_second() {
        let rule = RuleName::new("q").unwrap();
        assert_eq!(policy(rule, &Quota::per_second(10).burst(20)), "\"q\";q=20;w=2");
        assert_eq!(policy(rule, &Quota::per_second(100).burst(20)), "\"q\";q=100;w=1");
        assert_eq!(policy(rule, &Quota::per_second(100).burst(110)), "\"q\";q=200;w=2");
        assert_eq!(policy(rule, &Quota::fixed_window(5, Duration::from_millis(1_500))), "\"q\";q=5;w=2");
    }
}
