//! Which key is taken from which request.

mod address;
mod client_ip;
mod combine;
mod forwarded;
mod grpc;
mod request;

use http::{HeaderName, HeaderValue, Request};

use super::{Extracted, Key, KeyExtractor, PeerAddr};
use crate::request::RequestHead;

/// The key of a request, from an extractor that knows it at once.
fn key_of(extractor: &impl KeyExtractor, request: &Request<()>) -> Option<Key> {
    match extractor.extract(&RequestHead::from(request)) {
        Extracted::Key(key) => Some(key),
        Extracted::Missing => None,
        Extracted::Later(_) => panic!("the key has to be looked up"),
    }
}

/// The key as it is shown, for requests that have one.
fn shown(extractor: &impl KeyExtractor, request: &Request<()>) -> String {
    key_of(extractor, request).expect("the request has the key").to_string()
}

/// A request for a path.
fn to(path: &str) -> Request<()> {
    Request::builder().uri(path).body(()).expect("a path")
}

/// A request with lines of header fields.
fn with(lines: &[(&'static str, &[u8])]) -> Request<()> {
    let mut request = Request::new(());
    for (name, value) in lines {
        let value = HeaderValue::from_bytes(value).expect("a field's value");
        request.headers_mut().append(HeaderName::from_static(name), value);
    }
    request
}

/// A request from a peer with lines of header fields.
fn from_peer(peer: &str, lines: &[(&'static str, &str)]) -> Request<()> {
    let lines: Vec<_> = lines.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    let mut request = with(&lines);
    request.extensions_mut().insert(PeerAddr((peer.parse::<std::net::IpAddr>().unwrap(), 4711).into()));
    request
}
