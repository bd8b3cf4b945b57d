//! What axum's handlers extract, and what they answer.

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::{Request, StatusCode, request};
use ratekeeper_core::Decision;

use super::rejection::{JsonRejection, Rejection, RejectionReason, write_fields};
use super::report;
use crate::limiter::settle::Limits;
use crate::request::RequestHead;

/// There are no [`Limits`] to extract, because no [layer](crate::RateLimitLayer) around the handler provides
/// them.
///
/// Either there is no layer, or it has no rule that is settled and [does not
/// expose](crate::RateLimitLayer::expose_decision) its decisions. It never depends on what a client sends,
/// nor on whether the store fails. A handler that is also used in such places takes an `Option<Limits>`.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct MissingLimits;

impl std::fmt::Display for MissingLimits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "the handler wants the limits of its request, but no `RateLimitLayer` around it tells them",
        )
    }
}

impl std::error::Error for MissingLimits {}

impl IntoResponse for MissingLimits {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.to_string()).into_response()
    }
}

impl<T: Sync> FromRequestParts<T> for Limits {
    type Rejection = MissingLimits;

    async fn from_request_parts(parts: &mut request::Parts, _: &T) -> Result<Self, MissingLimits> {
        Self::of(&parts.extensions).ok_or(MissingLimits)
    }
}

impl<T: Sync> OptionalFromRequestParts<T> for Limits {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut request::Parts, _: &T) -> Result<Option<Self>, Infallible> {
        Ok(Self::of(&parts.extensions))
    }
}

/// A denied [`Decision`], as the response that the layer would send: 429, a JSON body, and all its fields.
///
/// For handlers that charge by themselves.
///
/// ```
/// use axum::extract::State;
/// use axum::http::StatusCode;
/// use axum::response::{IntoResponse, Response};
/// use ratekeeper::Limiter;
/// use ratekeeper::rejection::Denied;
///
/// async fn send(State(limiter): State<Limiter>) -> Result<&'static str, Response> {
///     let charged = limiter.charge("mails", "alice").await;
///     let decision = charged.map_err(|_| StatusCode::SERVICE_UNAVAILABLE.into_response())?;
///     Denied::check(decision).map_err(IntoResponse::into_response)?;
///     Ok("sent")
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Denied(Decision);

impl Denied {
    /// Returns the decision if it admits.
    ///
    /// # Errors
    ///
    /// If it denies. The error is the response.
    pub fn check(decision: Decision) -> Result<Decision, Self> {
        if decision.is_admitted() { Ok(decision) } else { Err(Self(decision)) }
    }

    /// The decision.
    #[must_use]
    pub const fn decision(&self) -> &Decision {
        &self.0
    }
}

impl std::fmt::Display for Denied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("too many requests")
    }
}

impl std::error::Error for Denied {}

impl IntoResponse for Denied {
    fn into_response(self) -> Response {
        let reason = RejectionReason::Limited(&self.0);
        // What was requested matters only for gRPC, whose handlers return a status.
        let mut response: Response<Body> =
            JsonRejection.reject(&RequestHead::from(&Request::new(())), &reason);
        write_fields(&reason, Some(&self.0), response.headers_mut());
        report::expose(response.extensions_mut(), self.0);
        response
    }
}
