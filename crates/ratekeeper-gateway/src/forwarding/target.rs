//! The target of a request.

use std::fmt;

use http::header::HOST;
use http::uri::Authority;
use http::{HeaderValue, StatusCode, Version, request};

/// A request that must not be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadRequest {
    /// It has no host, or several, or an invalid one (RFC 9112, section 3.2).
    Host,
    /// Its target is not valid.
    Target,
    /// Its path is ambiguous, and such paths are refused.
    Path,
    /// It asks for a tunnel.
    Connect,
    /// Its body has a transfer coding other than `chunked`.
    Coding,
}

impl BadRequest {
    pub(crate) const fn status(self) -> StatusCode {
        match self {
            Self::Host | Self::Target | Self::Path => StatusCode::BAD_REQUEST,
            Self::Connect | Self::Coding => StatusCode::NOT_IMPLEMENTED,
        }
    }
}

impl fmt::Display for BadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "A request has one Host, and it is the name or address of a host.",
            Self::Target => "A request is for a path.",
            Self::Path => "The path can be read in more than one way.",
            Self::Connect => "There are no tunnels through this gateway.",
            Self::Coding => "The only transfer coding that this gateway knows is chunked.",
        })
    }
}

/// The host that a request is for: that of its target if it has one, as in HTTP/2, otherwise that of its
/// field. `None` if there is none and none is required.
pub(super) fn host(head: &request::Parts) -> Result<Option<HeaderValue>, BadRequest> {
    let mut fields = head.headers.get_all(HOST).into_iter();
    let field = fields.next();
    if fields.next().is_some() {
        return Err(BadRequest::Host);
    }
    if let Some(authority) = head.uri.authority() {
        return check(authority.as_str().as_bytes()).map(Some);
    }
    match field {
        None if head.version == Version::HTTP_11 => Err(BadRequest::Host),
        Some(field) if !field.is_empty() => check(field.as_bytes()).map(Some),
        // A client that knows no host leaves it empty.
        None | Some(_) => Ok(None),
    }
}

fn check(host: &[u8]) -> Result<HeaderValue, BadRequest> {
    let authority = Authority::try_from(host).map_err(|_| BadRequest::Host)?;
    // User information could make one host appear here and another one upstream.
    let is_host =
        !authority.host().is_empty() && host.iter().all(|byte| !matches!(byte, b'@' | b'"' | b'\\'));
    if is_host { HeaderValue::from_bytes(host).map_err(|_| BadRequest::Host) } else { Err(BadRequest::Host) }
}
