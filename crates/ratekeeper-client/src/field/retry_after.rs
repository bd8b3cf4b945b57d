//! `Retry-After` (RFC 9110, section 10.2.3), and its relative in milliseconds.

use std::time::Duration;

use http::{HeaderMap, HeaderName, header};

use super::{Time, first, number};

/// Not standard, but finer. Some services send it in addition to `Retry-After`.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// How long to wait. Decimals, which the grammar does not allow but some services send, are accepted.
pub(super) fn wait(headers: &HeaderMap, now: Time) -> Option<Duration> {
    if let Some(millis) = first(headers, &RETRY_AFTER_MS).and_then(number::decimal) {
        return Some(number::seconds(millis / 1_000.0));
    }
    let text = first(headers, &header::RETRY_AFTER)?;
    match number::decimal(text) {
        Some(seconds) => Some(number::seconds(seconds)),
        None => httpdate::parse_http_date(text).ok().map(|at| now.until(at)),
    }
}
