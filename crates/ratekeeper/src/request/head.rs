//! What rules look at: a request without its body.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use http::header::{
    ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, ORIGIN,
    TRANSFER_ENCODING,
};
use http::{Extensions, HeaderMap, HeaderName, Method, Request, Uri, Version, request};

use super::Match;
use super::host::of_authority;
use super::pattern::Pattern;
use super::peer::{canonical_ip, peer};

/// Fields that no browser sends with a preflight, which has neither credentials nor content.
const NEVER_IN_PREFLIGHTS: [HeaderName; 4] = [AUTHORIZATION, COOKIE, CONTENT_TYPE, TRANSFER_ENCODING];

/// A request's head: all of it but the body.
///
/// Keys, tiers, costs and rejections are made from this, so that they work for every type of body.
#[derive(Clone, Copy)]
pub struct RequestHead<'a> {
    method: &'a Method,
    uri: &'a Uri,
    version: Version,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
    /// The patterns by which the rule that looks at the head matches, if a rule does.
    matched: &'a [Match<'a>],
}

impl<'a> RequestHead<'a> {
    /// The request's method.
    #[must_use]
    pub const fn method(&self) -> &'a Method {
        self.method
    }

    /// The request's URI.
    #[must_use]
    pub const fn uri(&self) -> &'a Uri {
        self.uri
    }

    /// The request's HTTP version.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// The request's header fields.
    #[must_use]
    pub const fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// The request's extensions: what outer layers put there.
    #[must_use]
    pub const fn extensions(&self) -> &'a Extensions {
        self.extensions
    }

    /// The path that the client asked for, without the query.
    ///
    /// Within a nested axum router, which strips its own part of the path from the URI, this is still the
    /// full path (with the `axum` feature). It is also what the client sent if a layer between two routers
    /// has rewritten the path, for example to remove a trailing slash. The current URI is in
    /// [`uri`](Self::uri). Rules [match](crate::Rule::on) either of the two.
    #[must_use]
    pub fn path(&self) -> &'a str {
        #[cfg(feature = "axum")]
        if let Some(path) = super::axum::original_path(self.extensions) {
            return path;
        }
        self.uri.path()
    }

    /// The paths that rules match: the full one, and the one that the router with the layer sees, if that is
    /// another.
    #[inline]
    pub(crate) fn paths(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let (full, seen) = (self.path(), self.uri.path());
        std::iter::once(full).chain((seen != full).then_some(seen))
    }

    /// The host that the request is for, as the client wrote it, without port and trailing dot.
    ///
    /// It is taken from the URI if that has one, as in HTTP/2 and in requests to a proxy, otherwise from the
    /// `Host` field. An IPv6 address is in brackets.
    ///
    /// Nothing guarantees that such a host exists: a client can write what it likes. It can also write one
    /// host into the URI and another into the `Host` field. An application that reads only the field then
    /// sees a different host.
    ///
    /// ```
    /// use http::Request;
    /// use ratekeeper::RequestHead;
    ///
    /// let request = Request::get("/").header("host", "api.example.com:8080").body(())?;
    /// assert_eq!(RequestHead::from(&request).host(), Some("api.example.com"));
    /// # Ok::<(), http::Error>(())
    /// ```
    #[must_use]
    pub fn host(&self) -> Option<&'a str> {
        match self.uri.authority() {
            Some(authority) => of_authority(authority.as_str()),
            // HTTP/1 has removed white space around the field by now, HTTP/2 has not.
            None => of_authority(self.headers.get(HOST)?.to_str().ok()?.trim_ascii()),
        }
    }

    /// The address of the peer, in its [canonical form](crate::key::canonical_ip), if it is known.
    ///
    /// It is what [`key::peer_ip`](crate::key::peer_ip) counts by: that of the proxy if there is one.
    #[must_use]
    pub fn peer_ip(&self) -> Option<IpAddr> {
        peer(self.extensions).map(|address| canonical_ip(address.ip()))
    }

    /// The extension of this type, if an outer layer put one there.
    #[must_use]
    pub fn extension<T: Send + Sync + 'static>(&self) -> Option<&'a T> {
        self.extensions.get()
    }

    /// The value of a path parameter, percent-decoded.
    ///
    /// The parameter is one of the pattern by which the rule matched, or of any of them if it matched by
    /// several. Otherwise it is one of the matched route (with the `axum` feature).
    #[must_use]
    pub fn path_param(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        let mut patterns = self.matched.iter().filter_map(|(_, pattern)| *pattern);
        let param = |pattern: &Pattern| self.paths().find_map(|path| pattern.param(path, name));
        patterns.find_map(param).or_else(|| self.route_param(name))
    }

    #[cfg(feature = "axum")]
    fn route_param(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        super::axum::route_param(self.extensions, self.path(), name)
    }

    #[cfg(not(feature = "axum"))]
    fn route_param(&self, _: &str) -> Option<Cow<'a, [u8]>> {
        None
    }

    /// The same head, for a rule that matches by these patterns.
    #[inline]
    pub(crate) fn with_matched<'b>(self, matched: &'b [Match<'b>]) -> RequestHead<'b>
    where
        'a: 'b,
    {
        RequestHead { matched, ..self }
    }

    /// Whether this can be a CORS preflight, by which a browser asks whether it may send a request.
    ///
    /// The layer does not limit preflights [by default](crate::RateLimitLayer::charge_preflights).
    ///
    /// A preflight is an `OPTIONS` request with `Origin` and with a method in
    /// `Access-Control-Request-Method`. Browsers send it without credentials and content, so a request with
    /// `Authorization`, `Cookie`, `Content-Type`, `Transfer-Encoding` or a `Content-Length` other than 0 is
    /// not a preflight. Nothing guarantees that a browser sent it.
    #[must_use]
    pub fn is_preflight(&self) -> bool {
        let asked_for = || self.headers.get(ACCESS_CONTROL_REQUEST_METHOD);
        self.method == Method::OPTIONS
            && self.headers.contains_key(ORIGIN)
            && asked_for().is_some_and(|method| Method::from_bytes(method.as_bytes()).is_ok())
            && !NEVER_IN_PREFLIGHTS.iter().any(|name| self.headers.contains_key(name))
            && self.headers.get_all(CONTENT_LENGTH).iter().all(|length| length == "0")
    }
}

impl<'a, B> From<&'a Request<B>> for RequestHead<'a> {
    fn from(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            version: request.version(),
            headers: request.headers(),
            extensions: request.extensions(),
            matched: &[],
        }
    }
}

impl<'a> From<&'a request::Parts> for RequestHead<'a> {
    fn from(parts: &'a request::Parts) -> Self {
        Self {
            method: &parts.method,
            uri: &parts.uri,
            version: parts.version,
            headers: &parts.headers,
            extensions: &parts.extensions,
            matched: &[],
        }
    }
}

// Without the header fields, which may hold secrets.
impl fmt::Debug for RequestHead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestHead")
            .field("method", &self.method)
            .field("path", &self.path())
            .finish_non_exhaustive()
    }
}
