//! What axum knows about a request.

use std::borrow::Cow;
use std::net::SocketAddr;

use axum::extract::connect_info::MockConnectInfo;
use axum::extract::{ConnectInfo, MatchedPath, OriginalUri};
use http::Extensions;

use crate::RequestHead;
use crate::rule::Pattern;

/// The peer's address, as a server started with connect info has it.
pub(crate) fn peer(extensions: &Extensions) -> Option<SocketAddr> {
    if let Some(ConnectInfo(address)) = extensions.get::<ConnectInfo<SocketAddr>>() {
        return Some(*address);
    }
    extensions.get::<MockConnectInfo<SocketAddr>>().map(|mock| mock.0)
}

/// The pattern of the route that matched.
pub(crate) fn route(extensions: &Extensions) -> Option<&str> {
    extensions.get::<MatchedPath>().map(MatchedPath::as_str)
}

/// A parameter of the route that matched.
pub(crate) fn route_param<'a>(head: &RequestHead<'a>, name: &str) -> Option<Cow<'a, [u8]>> {
    let pattern = Pattern::parse(route(head.extensions())?).ok()?;
    // The route is the whole one, so is this path; the request's own has lost what a nested router
    // took from it.
    let path = head.extension::<OriginalUri>().map_or(head.path(), |OriginalUri(uri)| uri.path());
    pattern.param(path, name)
}
