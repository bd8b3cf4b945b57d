//! `RateLimit` and `RateLimit-Policy`, as structured fields (RFC 9651).
//!
//! Reads the named lists of draft 8 and later in every revision of [`IetfDraft`], and the dictionary of
//! draft 7.

use std::time::Duration;

use http::{HeaderMap, HeaderName};
use ratekeeper_core::IetfDraft;
use sfv::{BareItem, Dictionary, Item, List, ListEntry, Parameters, Parser};

use super::{LimitReport, MAX_LIMITS, combined};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// The limits that the two fields describe. One that is not in `RateLimit` has no `remaining`.
pub(super) fn limits(headers: &HeaderMap) -> Vec<LimitReport> {
    let mut limits = Vec::new();
    let policies = list(headers, &POLICY).unwrap_or_default();
    let (requests, others): (Vec<_>, Vec<_>) =
        policies.iter().filter_map(item).partition(|member| is_requests(member));
    requests.into_iter().for_each(|member| policy(&mut limits, member));
    match list(headers, &RATELIMIT) {
        Some(members) => members
            .iter()
            .filter_map(item)
            .filter(|member| !others.iter().any(|other| name(other) == name(member)))
            .for_each(|member| available(&mut limits, member)),
        None => limits.extend(draft_7(headers)),
    }
    limits
}

/// The members of a list. One error voids the entire field (RFC 9651, section 1.1).
pub(super) fn list(headers: &HeaderMap, name: &HeaderName) -> Option<List> {
    combined(headers, name).and_then(|text| Parser::new(&text).parse().ok())
}

fn item(member: &ListEntry) -> Option<&Item> {
    match member {
        ListEntry::Item(item) => Some(item),
        ListEntry::InnerList(_) => None,
    }
}

/// A policy's name. Drafts 8 to 11 require a string; tokens are accepted, as they were proposed.
fn name(item: &Item) -> Option<&str> {
    match &item.bare_item {
        BareItem::String(name) => Some(name.as_str()),
        BareItem::Token(name) => Some(name.as_str()),
        _ => None,
    }
}

pub(super) fn integer(item: &BareItem) -> Option<u64> {
    match item {
        BareItem::Integer(n) => u64::try_from(i64::from(*n)).ok(),
        _ => None,
    }
}

/// A parameter that is an integer. Without wrapping: one that is negative counts as absent.
pub(super) fn parameter(params: &Parameters, key: &str) -> Option<u64> {
    params.get(key).and_then(integer)
}

/// Whether a policy counts requests. Quotas of bytes or connections do not set the pace of requests.
fn is_requests(policy: &Item) -> bool {
    match policy.params.get("qu") {
        None => true,
        Some(BareItem::String(unit)) => unit.as_str() == "requests",
        Some(_) => false,
    }
}

/// A member of `RateLimit-Policy`.
fn policy(limits: &mut Vec<LimitReport>, member: &Item) {
    let Some(name) = name(member) else { return };
    let window = parameter(&member.params, "w").filter(|window| *window > 0);
    if let Some(limit) = entry(limits, name) {
        limit.quota = parameter(&member.params, "q");
        limit.window = window.map(Duration::from_secs);
    }
}

/// A member of `RateLimit`.
fn available(limits: &mut Vec<LimitReport>, member: &Item) {
    let Some(name) = name(member) else { return };
    for draft in IetfDraft::ALL {
        if let Some(remaining) = parameter(&member.params, draft.available()) {
            let reset = parameter(&member.params, draft.effective_window());
            if let Some(limit) = entry(limits, name) {
                limit.remaining = Some(remaining);
                limit.reset = reset.map(Duration::from_secs);
            }
            return;
        }
    }
}

fn entry<'a>(limits: &'a mut Vec<LimitReport>, name: &str) -> Option<&'a mut LimitReport> {
    match limits.iter().position(|limit| limit.name == name) {
        Some(at) => limits.get_mut(at),
        None if limits.len() < MAX_LIMITS => {
            limits.push(LimitReport { name: name.to_owned(), ..LimitReport::default() });
            limits.last_mut()
        }
        None => None,
    }
}

/// `RateLimit: limit=100, remaining=50, reset=5`, with `RateLimit-Policy: 100;w=60`.
fn draft_7(headers: &HeaderMap) -> Option<LimitReport> {
    let text = combined(headers, &RATELIMIT)?;
    let fields: Dictionary = Parser::new(&text).parse().ok()?;
    let get = |key| match fields.get(key) {
        Some(ListEntry::Item(item)) => integer(&item.bare_item),
        _ => None,
    };
    let quota = get("limit");
    Some(LimitReport {
        name: String::new(),
        quota,
        window: quota.and_then(|quota| window_of(headers, quota)),
        remaining: get("remaining"),
        reset: get("reset").map(Duration::from_secs),
    })
}

/// The window of the policy that has this quota, in the unnamed form of drafts 4 to 7.
pub(super) fn window_of(headers: &HeaderMap, quota: u64) -> Option<Duration> {
    list(headers, &POLICY).and_then(|policies| window_in(&policies, quota))
}

/// The window of the unnamed member that has this quota.
pub(super) fn window_in(policies: &List, quota: u64) -> Option<Duration> {
    policies
        .iter()
        .filter_map(item)
        .filter(|policy| integer(&policy.bare_item) == Some(quota))
        .find_map(|policy| parameter(&policy.params, "w"))
        .filter(|window| *window > 0)
        .map(Duration::from_secs)
}
