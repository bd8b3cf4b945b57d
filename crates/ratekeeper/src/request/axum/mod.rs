//! What axum knows about a request.

mod route;

use std::borrow::Cow;
use std::net::SocketAddr;

use axum::extract::connect_info::MockConnectInfo;
use axum::extract::{ConnectInfo, MatchedPath, OriginalUri};
use http::Extensions;

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
pub(crate) fn route_param<'a>(extensions: &Extensions, path: &'a str, name: &str) -> Option<Cow<'a, [u8]>> {
    route::param(route(extensions)?, path, name)
}
