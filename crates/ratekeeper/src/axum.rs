//! What axum knows about a request, and what its handlers can learn about the limits.

mod route;

use std::borrow::Cow;
use std::convert::Infallible;
use std::net::SocketAddr;

use axum::extract::connect_info::MockConnectInfo;
use axum::extract::{ConnectInfo, FromRequestParts, MatchedPath, OptionalFromRequestParts, OriginalUri};
use axum::response::{IntoResponse, Response};
use http::{Extensions, StatusCode, request};

use crate::RequestHead;
use crate::limiter::settle::Limits;

/// The peer's address, as provided by a server started with connect info.
#[inline]
pub(crate) fn peer(extensions: &Extensions) -> Option<&SocketAddr> {
    if let Some(ConnectInfo(address)) = extensions.get::<ConnectInfo<SocketAddr>>() {
        return Some(address);
    }
    mock_peer(extensions)
}

#[cold]
fn mock_peer(extensions: &Extensions) -> Option<&SocketAddr> {
    extensions.get::<MockConnectInfo<SocketAddr>>().map(|mock| &mock.0)
}

/// The pattern of the route that matched.
pub(crate) fn route(extensions: &Extensions) -> Option<&str> {
    extensions.get::<MatchedPath>().map(MatchedPath::as_str)
}

/// The path before nested routers stripped their part of it.
pub(crate) fn original_path(extensions: &Extensions) -> Option<&str> {
    extensions.get::<OriginalUri>().map(|OriginalUri(uri)| uri.path())
}

/// A parameter of the route that matched.
pub(crate) fn route_param<'a>(head: &RequestHead<'a>, name: &str) -> Option<Cow<'a, [u8]>> {
    route::param(route(head.extensions())?, head.path(), name)
}

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
