//! What a request asks for.

use std::fmt;

use http::header::HOST;
use http::uri::Authority;
use http::{HeaderValue, StatusCode, Version, request};

/// A request that must not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadRequest {
    /// It has no host, or several, or one that makes no sense (RFC 9112, section 3.2).
    Host,
    /// It is for nothing that there can be.
    Target,
    /// Its path can be read in two ways, and that is not wanted.
    Path,
    /// It wants a tunnel.
    Connect,
    /// Its body is coded for the way here, and not only in chunks.
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

/// The host that a request is for: that of its target if there is one there, as in HTTP/2, or else of its field. `None` if
/// it need not say and does not.
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
        // Empty is what a client writes that knows of no host.
        None | Some(_) => Ok(None),
    }
}

fn check(host: &[u8]) -> Result<HeaderValue, BadRequest> {
    let authority = Authority::try_from(host).map_err(|_| BadRequest::Host)?;
    // A user in it is a way to have one host seen here and another one behind.
    let is_host =
        !authority.host().is_empty() && host.iter().all(|byte| !matches!(byte, b'@' | b'"' | b'\\'));
    if is_host { HeaderValue::from_bytes(host).map_err(|_| BadRequest::Host) } else { Err(BadRequest::Host) }
}
