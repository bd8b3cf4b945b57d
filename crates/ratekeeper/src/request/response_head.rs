//! What settles a charge: a response without its body.

use std::fmt;

use http::{Extensions, HeaderMap, Response, StatusCode, Version, response};

/// A response's head: all of it but the body.
///
/// The real cost of a request is [settled from this](crate::Rule::settle_by), so that it works for every type
/// of body.
#[derive(Clone, Copy)]
pub struct ResponseHead<'a> {
    status: StatusCode,
    version: Version,
    headers: &'a HeaderMap,
    extensions: &'a Extensions,
}

impl<'a> ResponseHead<'a> {
    /// The response's status.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        self.status
    }

    /// The response's HTTP version.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// The response's header fields, as the inner service wrote them.
    #[must_use]
    pub const fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// The response's extensions: what the handler or an inner layer put there.
    #[must_use]
    pub const fn extensions(&self) -> &'a Extensions {
        self.extensions
    }

    /// The extension of this type, if the handler or an inner layer put one there.
    #[must_use]
    pub fn extension<T: Send + Sync + 'static>(&self) -> Option<&'a T> {
        self.extensions.get()
    }
}

impl<'a, B> From<&'a Response<B>> for ResponseHead<'a> {
    fn from(response: &'a Response<B>) -> Self {
        Self {
            status: response.status(),
            version: response.version(),
            headers: response.headers(),
            extensions: response.extensions(),
        }
    }
}

impl<'a> From<&'a response::Parts> for ResponseHead<'a> {
    fn from(parts: &'a response::Parts) -> Self {
        Self {
            status: parts.status,
            version: parts.version,
            headers: &parts.headers,
            extensions: &parts.extensions,
        }
    }
}

// Without the header fields, which may hold secrets.
impl fmt::Debug for ResponseHead<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseHead").field("status", &self.status).finish_non_exhaustive()
    }
}
