//! `RateLimit` and `RateLimit-Policy`, as in draft-ietf-httpapi-ratelimit-headers.
//!
//! Each rule is a separate member, on a separate line. A list may be spread over lines, so nested layers can
//! add to it. The policy lines never change, so they are made once.

use http::{HeaderMap, HeaderName, HeaderValue};
use ratekeeper_core::{Algorithm, IetfDraft, Outcome, Quota, Retry, RuleName};

use super::seconds;

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// The largest integer of a structured field (RFC 9651, section 3.3.1).
const MAX_INTEGER: u64 = 999_999_999_999_999;

/// The member of `RateLimit-Policy` for a rule with this quota: how much may be used in which window.
///
/// For buckets the window is the time of a full refill. It is rounded up to whole seconds, and the quota is
/// what comes back in that window. A bucket of 20 that refills at 100 a second is 100 in a second, not 20.
pub(crate) fn policy(rule: RuleName, quota: &Quota) -> HeaderValue {
    let (amount, window) = match quota.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let window = seconds(quota.full_refill());
            let (units, micros) = quota.rate();
            let amount = u128::from(window) * 1_000_000 * u128::from(units) / u128::from(micros);
            (u64::try_from(amount).unwrap_or(u64::MAX), window)
        }
        _ => (quota.max().into(), seconds(quota.period())),
    };
    value(format!("\"{rule}\";q={};w={}", amount.min(MAX_INTEGER), window.min(MAX_INTEGER)))
}

/// Removes both fields if a handler has written one of them in another form, such as the dictionary of draft 7:
/// one member of another form makes a whole list unreadable (RFC 9651, section 1.1). Here each member is a
/// string with parameters.
pub(super) fn remove_other_forms(headers: &mut HeaderMap) {
    let is_item = |line: &HeaderValue| line.as_bytes().trim_ascii().starts_with(b"\"");
    if [&POLICY, &RATELIMIT].iter().any(|name| !headers.get_all(*name).iter().all(is_item)) {
        headers.remove(&POLICY);
        headers.remove(&RATELIMIT);
    }
}

/// Adds a rule's members to what an inner layer, or another rule, has written. A full map, with thousands of
/// fields, is left unchanged.
pub(super) fn append(policy: HeaderValue, limit: HeaderValue, headers: &mut HeaderMap) {
    if headers.try_append(&POLICY, policy).is_ok() {
        drop(headers.try_append(&RATELIMIT, limit));
    }
}

/// The member of `RateLimit`: what remains, and for how long no more than that can be used.
pub(super) fn limit(draft: IetfDraft, rule: RuleName, outcome: &Outcome) -> HeaderValue {
    let mut text = format!("\"{rule}\";{}={}", draft.available(), outcome.remaining());
    // A client that reads `r=0` needs to know for how long. With a full budget there is nothing to report,
    // nor if waiting would never help.
    let is_empty = outcome.remaining() == 0 && outcome.retry() != Some(Retry::Never);
    if is_empty || !outcome.refill_after().is_zero() {
        let window = seconds(outcome.refill_after()).min(MAX_INTEGER);
        text.push_str(&format!(";{}={window}", draft.effective_window()));
    }
    value(text)
}

/// A rule's name contains only characters that are allowed in a string of a structured field.
fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_empty_budget_says_for_how_long_unless_it_is_in_vain_and_a_whole_one_does_not() {
        let rule = RuleName::new("q").unwrap();
        let zero = Duration::ZERO;
        let never = Outcome::denied(5, 0, zero, zero, Retry::Never);
        assert_eq!(limit(IetfDraft::Draft11, rule, &never), "\"q\";r=0");
        let denied = Outcome::denied(5, 0, zero, zero, Retry::After(zero));
        assert_eq!(limit(IetfDraft::Draft11, rule, &denied), "\"q\";r=0;t=1");
        let empty = Outcome::admitted(5, 0, Duration::from_millis(9_001), Duration::from_millis(1_001), zero);
        assert_eq!(limit(IetfDraft::Draft11, rule, &empty), "\"q\";r=0;t=2");
        let whole = Outcome::admitted(5, 5, zero, zero, zero);
        assert_eq!(limit(IetfDraft::Draft11, rule, &whole), "\"q\";r=5");
    }
    #[test]
    fn the_revision_names_the_parameters() {
        let rule = RuleName::new("q").unwrap();
        let half = Outcome::admitted(4, 2, Duration::from_secs(2), Duration::from_secs(1), Duration::ZERO);
        assert_eq!(limit(IetfDraft::Draft11, rule, &half), "\"q\";r=2;t=1");
        assert_eq!(limit(IetfDraft::Pull166, rule, &half), "\"q\";a=2;w=1");
    }

    #[test]
    fn the_policy_of_a_bucket_is_its_rate_even_if_it_fills_within_a_second() {
        let rule = RuleName::new("q").unwrap();
        assert_eq!(policy(rule, &Quota::per_second(10).burst(20)), "\"q\";q=20;w=2");
        assert_eq!(policy(rule, &Quota::per_second(100).burst(20)), "\"q\";q=100;w=1");
        assert_eq!(policy(rule, &Quota::per_second(100).burst(110)), "\"q\";q=200;w=2");
        assert_eq!(policy(rule, &Quota::fixed_window(5, Duration::from_millis(1_500))), "\"q\";q=5;w=2");
    }
}
