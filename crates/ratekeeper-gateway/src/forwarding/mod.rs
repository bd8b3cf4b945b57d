//! Which parts of a message's head are forwarded, and what the gateway adds. Nothing here waits or sends.

mod hop_by_hop;
mod names;
mod offer;
mod origin;
mod plain;
mod target;

use std::net::IpAddr;

use http::header::{COOKIE, HOST, VIA};
use http::{HeaderMap, HeaderValue, Method, Version, request, response};
use ipnet::IpNet;
use ratekeeper::key::canonical_ip;

pub(crate) use self::offer::Offer;
pub(crate) use self::target::BadRequest;
use crate::args::{Host, Upstream};

/// The gateway's name in `Via`.
const PSEUDONYM: &str = "gateway";

/// How heads are rewritten.
#[derive(Clone, Debug)]
pub(crate) struct Forwarding {
    pub(crate) upstream: Upstream,
    pub(crate) host: Host,
    /// The proxies whose forwarding fields are trusted.
    pub(crate) trusted: Vec<IpNet>,
    /// Whether ambiguous paths are refused.
    pub(crate) plain_paths: bool,
}

impl Forwarding {
    /// Turns the head of a request from this peer into that of one to the upstream, and returns the upgrade
    /// that it offers.
    ///
    /// # Errors
    ///
    /// When it must not be forwarded.
    pub(crate) fn request(
        &self,
        head: &mut request::Parts,
        peer: IpAddr,
    ) -> Result<Option<Offer>, BadRequest> {
        // Tunnels to arbitrary targets are for forward proxies.
        if head.method == Method::CONNECT {
            return Err(BadRequest::Connect);
        }
        if self.plain_paths && !plain::is_plain(head.uri.path()) {
            return Err(BadRequest::Path);
        }
        if !hop_by_hop::is_uncoded(&head.headers) {
            return Err(BadRequest::Coding);
        }
        let asked = target::host(head)?;
        let path = head.uri.path_and_query().cloned().ok_or(BadRequest::Target)?;
        head.uri = self.upstream.uri(path).ok_or(BadRequest::Target)?;

        let offer = Offer::of(head);
        // Fields that the client names in `Connection` are removed before anything is written, so that it
        // cannot name what the gateway writes.
        let takes_trailers = hop_by_hop::takes_trailers(&head.headers);
        hop_by_hop::strip(&mut head.headers);
        if takes_trailers {
            hop_by_hop::take_trailers(&mut head.headers);
        }
        if let Some(offer) = &offer {
            offer.write(&mut head.headers);
        }

        names::strip_disguised(&mut head.headers);
        origin::tell(&mut head.headers, peer, self.trusts(peer), asked.as_ref());
        let host = match self.host {
            Host::Pass => asked.as_ref().unwrap_or(self.upstream.host()),
            Host::Upstream => self.upstream.host(),
        };
        head.headers.insert(HOST, host.clone());
        join_cookies(&mut head.headers);
        via(&mut head.headers, head.version);
        head.version = Version::HTTP_11;
        Ok(offer)
    }

    /// Turns the head of an upstream's response into the gateway's, including an upgrade that was accepted.
    pub(crate) fn response(&self, head: &mut response::Parts, upgraded: Option<&Offer>) {
        hop_by_hop::strip(&mut head.headers);
        if let Some(protocol) = upgraded {
            protocol.write(&mut head.headers);
        }
        via(&mut head.headers, head.version);
        head.version = Version::HTTP_11;
    }

    fn trusts(&self, peer: IpAddr) -> bool {
        let peer = canonical_ip(peer);
        self.trusted.iter().any(|network| network.contains(&peer))
    }
}

/// RFC 9113, section 8.2.3: HTTP/2 may split cookies into several fields, but HTTP/1.1 has one.
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).iter().nth(1).is_some() {
        let cookies: Vec<_> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
        // Made of valid values, so it is valid.
        if let Ok(mut joined) = HeaderValue::from_bytes(&cookies.join(&b"; "[..])) {
            joined.set_sensitive(true);
            headers.insert(COOKIE, joined);
        }
    }
}

/// RFC 9110, section 7.6.3: the version of the received message, and the name of its recipient.
fn via(headers: &mut HeaderMap, version: Version) {
    let version = match version {
        Version::HTTP_09 => "0.9",
        Version::HTTP_10 => "1.0",
        Version::HTTP_2 => "2",
        Version::HTTP_3 => "3",
        _ => "1.1",
    };
    if let Ok(value) = HeaderValue::from_str(&format!("{version} {PSEUDONYM}")) {
        headers.append(VIA, value);
    }
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
