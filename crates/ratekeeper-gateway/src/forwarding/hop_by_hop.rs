//! Hop-by-hop fields, which are not forwarded.

use http::header::{self, CONNECTION, TE};
use http::{HeaderMap, HeaderName, HeaderValue};

/// The fields of RFC 9110, section 7.6.1, whether or not `Connection` names them, and those between proxies
/// and clients. `Proxy` is not a real field, but some CGI programs take it for the address of their own
/// proxy.
const ALWAYS: [HeaderName; 11] = [
    CONNECTION,
    TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-authentication-info"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("proxy"),
];

/// Removes them, and those that `Connection` names.
pub(super) fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> =
        tokens(headers, &CONNECTION).filter_map(|token| HeaderName::from_bytes(token).ok()).collect();
    for name in named.iter().chain(&ALWAYS) {
        headers.remove(name);
    }
}

/// Whether a body has no transfer coding but `chunked`. Nobody would learn of another one (RFC 9112, section
/// 6.1).
pub(super) fn is_uncoded(headers: &HeaderMap) -> bool {
    let mut codings = tokens(headers, &header::TRANSFER_ENCODING).filter(|coding| !coding.is_empty());
    let first = codings.next();
    first.is_none_or(|coding| coding.eq_ignore_ascii_case(b"chunked")) && codings.next().is_none()
}

/// Whether the sender accepts trailers (RFC 9110, section 10.1.4).
pub(super) fn takes_trailers(headers: &HeaderMap) -> bool {
    has_token(headers, &TE, "trailers")
}

/// Declares that the gateway accepts trailers.
pub(super) fn take_trailers(headers: &mut HeaderMap) {
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.append(CONNECTION, HeaderValue::from_static("te"));
}

/// Whether a list field contains this token.
pub(super) fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    tokens(headers, name).any(|found| found.eq_ignore_ascii_case(token.as_bytes()))
}

/// The tokens of a list field, on all of its lines.
pub(super) fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    let lines = headers.get_all(name).into_iter();
    lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
}
