//! What a response says about budgets, read from its header fields.
//!
//! Everything here is a pure function of the fields and the time. Nothing panics on hostile input: a field
//! that cannot be parsed counts as absent, and waits are capped.

mod grpc;
mod ietf;
mod legacy;
mod number;
mod retry_after;
#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName, StatusCode, header};

/// At most this many limits are read from one response, and kept for one budget.
pub(crate) const MAX_LIMITS: usize = 16;

/// What one response says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Set if the server refused the request because of a limit or of overload.
    pub(crate) refusal: Option<Refusal>,
    /// The limits that the response describes.
    pub(crate) limits: Vec<LimitReport>,
}

/// Why and for how long the server refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// How long the server asks to wait, if it says so.
    pub(crate) wait: Option<Duration>,
    /// Whether the server is overloaded, rather than this client's quota used up.
    pub(crate) is_overload: bool,
    /// Whether the server forbids a retry.
    pub(crate) is_final: bool,
}

/// One limit, as a response describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LimitReport {
    /// The policy's name; empty for fields that have none.
    pub(crate) name: String,
    /// How much may be used in `window`.
    pub(crate) quota: Option<u64>,
    /// The window that `quota` applies to.
    pub(crate) window: Option<Duration>,
    /// How much is available.
    pub(crate) remaining: Option<u64>,
    /// How long until more is available, at most.
    pub(crate) reset: Option<Duration>,
}

impl Report {
    /// Reads a response's fields. Waits are capped at `max_pause`.
    pub(crate) fn read(
        status: StatusCode,
        headers: &HeaderMap,
        now: SystemTime,
        max_pause: Duration,
    ) -> Self {
        // Fields of a response from a cache describe the past (draft 11, section 7.3).
        let is_cached = first(headers, &header::AGE).and_then(number::decimal).is_some_and(|age| age > 0.0);
        if is_cached {
            return Self::default();
        }
        let now = Time { local: now, server: date(headers) };
        let mut limits = ietf::limits(headers);
        if limits.is_empty() {
            limits.extend(legacy::limit(headers, now));
        }
        for limit in &mut limits {
            limit.reset = limit.reset.map(|reset| reset.min(max_pause));
        }
        let mut refusal = refusal(status, headers, now, &limits);
        if let Some(refusal) = &mut refusal {
            refusal.wait = refusal.wait.map(|wait| wait.min(max_pause));
        }
        Self { refusal, limits }
    }
}

fn refusal(status: StatusCode, headers: &HeaderMap, now: Time, limits: &[LimitReport]) -> Option<Refusal> {
    if let Some(refusal) = grpc::refusal(headers) {
        return Some(refusal);
    }
    let wait = retry_after::wait(headers, now);
    let spent = limits.iter().filter(|limit| limit.remaining == Some(0));
    let is_refused = match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => true,
        // GitHub answers 403 as well as 429.
        StatusCode::FORBIDDEN => wait.is_some() || spent.clone().next().is_some(),
        _ => false,
    };
    is_refused.then(|| Refusal {
        // `Retry-After` overrides the other fields (draft 11, section 7).
        wait: wait.or_else(|| spent.filter_map(|limit| limit.reset).max()),
        is_overload: status == StatusCode::SERVICE_UNAVAILABLE,
        is_final: false,
    })
}

/// The time, on both clocks.
#[derive(Clone, Copy, Debug)]
struct Time {
    local: SystemTime,
    /// From the response's `Date`. In whole seconds, rounded down.
    server: Option<SystemTime>,
}

impl Time {
    /// How long until a point in time on the server's clock. If that is unknown, the two clocks are assumed
    /// to agree.
    fn until(self, at: SystemTime) -> Duration {
        at.duration_since(self.server.unwrap_or(self.local)).unwrap_or_default()
    }
}

fn date(headers: &HeaderMap) -> Option<SystemTime> {
    first(headers, &header::DATE).and_then(|date| httpdate::parse_http_date(date).ok())
}

/// The first line of a field, if it is text.
fn first<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
}

/// All lines of a field as one, as RFC 9110 combines them. `None` if there are none, or if one is not text.
fn combined(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let mut lines = headers.get_all(name).iter();
    let mut text = lines.next()?.to_str().ok()?.to_owned();
    for line in lines {
        text.push_str(", ");
        text.push_str(line.to_str().ok()?);
    }
    Some(text)
}
