//! The request to explain.

use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use http::{HeaderName, HeaderValue, Method, Request, Uri, header};
use ratekeeper::Timestamp;
use ratekeeper::key::PeerAddr;

/// A method and a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    method: Method,
    uri: Uri,
}

impl FromStr for Line {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (method, target) = match text.trim().split_once(char::is_whitespace) {
            Some((method, target)) => (method, target.trim_start()),
            None => ("GET", text.trim()),
        };
        let method = match method.parse::<Method>() {
            // Methods are compared case-sensitively, so it would match no rule.
            Ok(method) if !method.as_str().bytes().any(|byte| byte.is_ascii_lowercase()) => method,
            _ => return Err(format!("`{method}` is no method; it is written like `POST /login`")),
        };
        let is_target = target.starts_with('/') || target.contains("://") || target == "*";
        match target.parse() {
            Ok(uri) if is_target => Ok(Self { method, uri }),
            _ => Err(format!("`{target}` is no path; it is written like `POST /login`")),
        }
    }
}

/// The request to explain, as given on the command line.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) line: Line,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) host: Option<HeaderValue>,
    pub(crate) peer: Option<SocketAddr>,
    /// The result of tier lookups.
    pub(crate) tier: Option<String>,
    /// When it arrives, in Unix seconds.
    pub(crate) at: Option<u64>,
}

impl Asked {
    /// Where it comes from.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer.unwrap_or(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0))
    }

    /// When it arrives.
    pub(crate) fn at(&self) -> Timestamp {
        let since_epoch = match self.at {
            Some(seconds) => Duration::from_secs(seconds),
            None => SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default(),
        };
        Timestamp::UNIX_EPOCH.saturating_add(since_epoch)
    }

    /// The request as a server would receive it.
    pub(crate) fn into_request(self) -> Request<()> {
        let peer = self.peer();
        let mut request = Request::new(());
        (*request.method_mut(), *request.uri_mut()) = (self.line.method, self.line.uri);
        for (name, value) in self.headers {
            request.headers_mut().append(name, value);
        }
        if let Some(host) = self.host {
            request.headers_mut().insert(header::HOST, host);
        }
        request.extensions_mut().insert(PeerAddr(peer));
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_a_method_and_a_path() {
        for (text, method, uri) in [
            ("POST /login", "POST", "/login"),
            (" POST   /login ", "POST", "/login"),
            ("/login?x=1", "GET", "/login?x=1"),
            ("PURGE https://example.com/x", "PURGE", "https://example.com/x"),
            ("OPTIONS *", "OPTIONS", "*"),
        ] {
            let line: Line = text.parse().unwrap();
            assert_eq!((line.method.as_str(), line.uri.to_string().as_str()), (method, uri), "{text}");
        }
        for text in ["", "POST", "post /login", "POST login", "P(ST /", "GET /a b"] {
            assert!(text.parse::<Line>().is_err(), "{text}");
        }
    }
}
