//! Fields that name the client for whom a request is forwarded.

use std::net::IpAddr;

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName, HeaderValue};
use ratekeeper::key::{canonical_ip, intact_forwarded};

use super::names::{remove, remove_trailers};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The protocol of this gateway's clients.
const PROTO: &str = "http";

/// Fields in which other proxies name the client or its target, and which upstreams may trust.
const CLIENT_FIELDS: [&str; 15] = [
    "x-forwarded",
    "x-original-forwarded-for",
    "x-original-host",
    // Some upstreams use these as the path, bypassing the rules for it.
    "x-original-url",
    "x-rewrite-url",
    "client-ip",
    "x-azure-clientip",
    "x-envoy-external-address",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "fastly-client-ip",
    "fly-client-ip",
];

/// Writes the client for whom a request is forwarded, and the host it asked for.
///
/// A trusted peer names the client that it forwards for, and its own address is added after that. What any
/// other peer says is ignored and removed.
pub(super) fn tell(headers: &mut HeaderMap, peer: IpAddr, trusted: bool, host: Option<&HeaderValue>) {
    let peer = canonical_ip(peer);
    remove(headers, |name| is_of_proxies(name) && !trusted);
    remove_trailers(headers, is_of_proxies);
    append(headers, &X_FORWARDED_FOR, peer.to_string().as_bytes());
    if !headers.contains_key(X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(PROTO));
    }
    if let (Some(host), false) = (host, headers.contains_key(X_FORWARDED_HOST)) {
        headers.insert(X_FORWARDED_HOST, host.clone());
    }
    keep_intact(headers);
    append(headers, &FORWARDED, &element(peer, host));
}

fn is_of_proxies(name: &str) -> bool {
    name == "forwarded" || name.starts_with("x-forwarded-") || CLIENT_FIELDS.contains(&name)
}

/// Appends to a list. It becomes a single line, since some upstreams read only one.
fn append(headers: &mut HeaderMap, name: &HeaderName, entry: &[u8]) {
    let lines = headers.get_all(name).iter().map(HeaderValue::as_bytes).filter(|line| !line.is_empty());
    let entries: Vec<_> = lines.chain([entry]).collect();
    if let Ok(value) = HeaderValue::from_bytes(&entries.join(&b", "[..])) {
        headers.insert(name, value);
    }
}

/// An element of `Forwarded` (RFC 7239, section 4).
fn element(peer: IpAddr, host: Option<&HeaderValue>) -> Vec<u8> {
    let mut element = match peer {
        IpAddr::V4(v4) => format!("for={v4}"),
        IpAddr::V6(v6) => format!("for=\"[{v6}]\""),
    }
    .into_bytes();
    if let Some(host) = host {
        // Needs no escaping: hosts contain no quotes and no backslashes.
        element.extend_from_slice(b";host=\"");
        element.extend_from_slice(host.as_bytes());
        element.push(b'"');
    }
    element.extend_from_slice(format!(";proto={PROTO}").as_bytes());
    element
}

/// Removes from `Forwarded` what is malformed and all that precedes it: an open quote would swallow what is
/// added after it. What follows it was written by proxies and is kept.
fn keep_intact(headers: &mut HeaderMap) {
    let mut kept = Vec::new();
    for line in headers.get_all(FORWARDED).iter().rev() {
        let intact = intact_forwarded(line.as_bytes());
        let is_whole = intact.len() == line.len();
        kept.extend(HeaderValue::from_bytes(intact).ok());
        if !is_whole {
            break;
        }
    }
    headers.remove(FORWARDED);
    for line in kept.into_iter().rev() {
        headers.append(FORWARDED, line);
    }
}
