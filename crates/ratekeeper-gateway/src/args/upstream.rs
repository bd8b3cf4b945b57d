//! The upstream.

use std::fmt;
use std::str::FromStr;

use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Uri, uri};

/// The server behind the gateway: `http` or `https`, a host and optionally a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Upstream {
    scheme: Scheme,
    authority: Authority,
    host: HeaderValue,
}

impl Upstream {
    /// Its own `Host`.
    pub(crate) const fn host(&self) -> &HeaderValue {
        &self.host
    }

    pub(crate) fn is_https(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// The URI of a path on the upstream. `None` if that is not a valid URI, which no path of a request leads
    /// to.
    pub(crate) fn uri(&self, path: PathAndQuery) -> Option<Uri> {
        let mut parts = uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        parts.path_and_query = Some(path);
        Uri::from_parts(parts).ok()
    }
}

impl FromStr for Upstream {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let uri: Uri = text.parse().map_err(|error| format!("this is not a URL: {error}"))?;
        let parts = uri.into_parts();
        let (Some(scheme), Some(authority)) = (parts.scheme, parts.authority) else {
            return Err("an upstream has a scheme and a host, such as http://127.0.0.1:9000".to_owned());
        };
        if scheme != Scheme::HTTP && scheme != Scheme::HTTPS {
            return Err(format!("{scheme} is not spoken here: an upstream is http or https"));
        }
        if authority.as_str().contains('@') {
            return Err("an upstream has no user: clients say who they are".to_owned());
        }
        if authority.host().is_empty() {
            return Err("an upstream has a host".to_owned());
        }
        if parts.path_and_query.is_some_and(|path| path != "/") {
            return Err("an upstream has no path: that of each request is passed on as it is".to_owned());
        }
        let host = HeaderValue::from_str(authority.as_str()).map_err(|error| error.to_string())?;
        Ok(Self { scheme, authority, host })
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.authority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_passed_on_as_it_is() {
        let upstream: Upstream = "http://localhost:9000/".parse().unwrap();
        assert_eq!(
            (upstream.to_string(), upstream.host()),
            ("http://localhost:9000".to_owned(), &HeaderValue::from_static("localhost:9000"))
        );
        for path in ["/", "//", "/a//b/../c", "/%2F%2f?a=%20&&b", "*", "/?", "/a?b?c"] {
            let uri = upstream.uri(path.parse().unwrap()).unwrap();
            assert_eq!(uri.path_and_query().unwrap(), path);
        }
    }

    #[test]
    fn what_is_no_server_is_refused() {
        for text in [
            "",
            "localhost:9000",
            "/path",
            "ftp://host",
            "http://",
            "http://user@host",
            "http://host/path",
            "http://host/?q",
            "http://:80",
        ] {
            assert!(text.parse::<Upstream>().is_err(), "{text}");
        }
    }
}
