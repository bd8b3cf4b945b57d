//! The responses to rejected requests.

mod body;
mod grpc;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use http::header::{AGE, CACHE_CONTROL, ETAG, EXPIRES, LAST_MODIFIED, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use ratekeeper_core::{Decision, RuleName, StoreError};

pub use self::body::{JsonRejection, ProblemRejection};
pub use self::grpc::GrpcRejection;
use super::headers::{legacy, number};
use crate::request::RequestHead;
use crate::rule::policy::seconds;

/// Fields that say how long a response can be reused.
const FRESHNESS: [HeaderName; 4] = [EXPIRES, ETAG, LAST_MODIFIED, AGE];

/// Whether a field says how long a response can be reused, to all caches or to some: `CDN-Cache-Control` and
/// similar fields (RFC 9213) take precedence over `Cache-Control`.
fn is_freshness(name: &HeaderName) -> bool {
    let text = name.as_str();
    FRESHNESS.contains(name) || text.ends_with("-cache-control") || text == "surrogate-control"
}

/// Why a request is rejected.
///
/// A caller that is over its limit and a store that cannot decide are different things, and are answered
/// differently: with 429 and with 503.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum RejectionReason<'a> {
    /// A rule denies.
    Limited(&'a Decision),
    /// The store could not decide, and a rule [denies](crate::FailurePolicy::Deny) in that case.
    Unavailable {
        /// Why it could not. Not for clients: it may reveal internals.
        error: &'a StoreError,
        /// The rule, or the first of several.
        rule: RuleName,
    },
    /// The request would have to be held back, but too many [wait
    /// already](crate::LimiterBuilder::max_waiting), or the limiter [is closed](crate::Limiter::close).
    Overloaded,
}

impl RejectionReason<'_> {
    /// 429 or 503.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::Limited(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable { .. } | Self::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// After how many seconds to try again: at least one, or `None` if it would never succeed.
    #[must_use]
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.wait().map(seconds)
    }

    /// The exact time to wait before trying again, or `None` if it would never succeed.
    #[inline]
    fn wait(&self) -> Option<Duration> {
        match self {
            Self::Limited(decision) => decision.retry()?.after(),
            Self::Unavailable { .. } | Self::Overloaded => Some(Duration::from_secs(1)),
        }
    }
}

/// Adds `Retry-After`, unless the response has it, and the fields of a decision, and keeps caches from storing
/// the response.
pub(super) fn write_fields(
    reason: &RejectionReason<'_>,
    decision: Option<&Decision>,
    headers: &mut HeaderMap,
) {
    if let Some(seconds) = reason.retry_after_seconds()
        && !headers.contains_key(RETRY_AFTER)
    {
        // A full map, with thousands of fields, is left unchanged.
        drop(headers.try_insert(RETRY_AFTER, number(seconds)));
    }
    // RFC 6585, section 4: a 429 must not be stored by a cache. Usually there is nothing to remove.
    if headers.keys().any(is_freshness) {
        let fields: Vec<_> = headers.keys().filter(|name| is_freshness(name)).cloned().collect();
        for field in fields {
            headers.remove(field);
        }
    }
    drop(headers.try_insert(CACHE_CONTROL, HeaderValue::from_static("no-store")));
    if let Some(decision) = decision {
        legacy::write(decision, headers);
    }
}

/// Makes the response for a rejected request, with a body of type `B`.
///
/// It is implemented by [`JsonRejection`] and [`ProblemRejection`] for every body that can be made from
/// bytes, by [`GrpcRejection`] for every body that can be empty, and by closures. The layer itself adds
/// `Retry-After`, `Cache-Control: no-store` and the rate-limit fields.
///
/// ```
/// use axum::body::Body;
/// use axum::response::{IntoResponse, Response};
/// use ratekeeper::{Quota, RateLimitLayer, rejection::RejectionReason, RequestHead};
///
/// let layer = RateLimitLayer::new(Quota::per_second(10)).rejection(
///     |head: &RequestHead<'_>, reason: &RejectionReason<'_>| -> Response {
///         (reason.status(), format!("not so fast at {}", head.path())).into_response()
///     },
/// );
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot make a response with a body of type `{B}`",
    note = "`JsonRejection` and `ProblemRejection` need a body that is `From<Bytes>`, and `GrpcRejection` one that is `Default`",
    note = "for any other body, use a closure: `layer.rejection(|head: &RequestHead<'_>, reason: &RejectionReason<'_>| …)`, \
            or put the layer outside the one that changes the body"
)]
pub trait Rejection<B> {
    /// Makes the response.
    fn reject(&self, head: &RequestHead<'_>, reason: &RejectionReason<'_>) -> Response<B>;
}

impl<B, F> Rejection<B> for F
where
    F: Fn(&RequestHead<'_>, &RejectionReason<'_>) -> Response<B>,
{
    fn reject(&self, head: &RequestHead<'_>, reason: &RejectionReason<'_>) -> Response<B> {
        self(head, reason)
    }
}

/// Any [`Rejection`] for one type of body, under a type that can be named.
pub struct BoxRejection<B>(Arc<dyn Rejection<B> + Send + Sync>);

impl<B> BoxRejection<B> {
    /// Wraps a rejection.
    pub fn new(rejection: impl Rejection<B> + Send + Sync + 'static) -> Self {
        Self(Arc::new(rejection))
    }
}

impl<B> Rejection<B> for BoxRejection<B> {
    fn reject(&self, head: &RequestHead<'_>, reason: &RejectionReason<'_>) -> Response<B> {
        self.0.reject(head, reason)
    }
}

impl<B> Clone for BoxRejection<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B> Debug for BoxRejection<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BoxRejection(..)")
    }
}
