//! `RateLimit` and `RateLimit-Policy`, as in draft-ietf-httpapi-ratelimit-headers.
//!
//! Each rule is a separate member, on a separate line. A list may be spread over lines, so nested layers can
//! add to it. The policy lines never change, so they are made once.

use http::{HeaderMap, HeaderName, HeaderValue};
use ratekeeper_core::{IetfDraft, Outcome, Retry, RuleName};

use super::push_number;
use crate::rule::policy::{MAX_INTEGER, member, seconds};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Removes both fields if a handler has written one of them in another form, such as the dictionary of draft 7:
/// one member of another form makes a whole list unreadable (RFC 9651, section 1.1). Here each member is a
/// string with parameters.
pub(super) fn remove_other_forms(headers: &mut HeaderMap) {
    let is_ours = |name: &HeaderName| *name == POLICY || *name == RATELIMIT;
    let is_item = |line: &HeaderValue| line.as_bytes().trim_ascii().starts_with(b"\"");
    // Mostly there are few fields, and looking at them is faster than looking two up.
    if !headers.iter().all(|(name, line)| !is_ours(name) || is_item(line)) {
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
    let mut text = String::with_capacity(rule.as_str().len() + 32);
    text.push('"');
    text.push_str(rule.as_str());
    text.push_str("\";");
    text.push_str(draft.available());
    text.push('=');
    push_number(&mut text, outcome.remaining().into());
    // A client that reads `r=0` needs to know for how long. With a full budget there is nothing to report,
    // nor if waiting would never help.
    let is_empty = outcome.remaining() == 0 && outcome.retry() != Some(Retry::Never);
    if is_empty || !outcome.refill_after().is_zero() {
        text.push(';');
        text.push_str(draft.effective_window());
        text.push('=');
        push_number(&mut text, seconds(outcome.refill_after()).min(MAX_INTEGER));
    }
    member(text)
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
}
