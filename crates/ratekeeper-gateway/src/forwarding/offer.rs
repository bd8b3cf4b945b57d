//! Offers to switch the protocol of a connection.

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue, Version, request, response};

use super::hop_by_hop::{has_token, tokens};

/// Protocols to switch to, such as `websocket`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer(HeaderValue);

impl Offer {
    /// The offer of a request, if it offers anything that may be forwarded.
    ///
    /// Other versions of HTTP may not be: within them the client would send requests that nobody counts.
    pub(super) fn of(head: &request::Parts) -> Option<Self> {
        if head.version != Version::HTTP_11 || !has_token(&head.headers, &CONNECTION, "upgrade") {
            return None;
        }
        let offered =
            tokens(&head.headers, &UPGRADE).filter(|protocol| !protocol.is_empty() && !is_http(protocol));
        let offered: Vec<_> = offered.collect();
        if offered.is_empty() {
            None
        } else {
            HeaderValue::from_bytes(&offered.join(&b", "[..])).ok().map(Self)
        }
    }

    /// The protocol that an upstream has accepted, if it did and that was offered.
    pub(crate) fn accepted(&self, head: &response::Parts) -> Option<Self> {
        let mut chosen = tokens(&head.headers, &UPGRADE);
        let (Some(protocol), None) = (chosen.next(), chosen.next()) else { return None };
        let mut offered = self.0.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        let is_offered = offered.any(|offer| offer.eq_ignore_ascii_case(protocol));
        if is_offered { HeaderValue::from_bytes(protocol).ok().map(Self) } else { None }
    }

    /// The protocols, as text.
    pub(crate) fn as_str(&self) -> &str {
        self.0.to_str().unwrap_or_default()
    }

    pub(super) fn write(&self, headers: &mut HeaderMap) {
        headers.append(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, self.0.clone());
    }
}

fn is_http(protocol: &[u8]) -> bool {
    let name = protocol.split(|byte| *byte == b'/').next().unwrap_or_default();
    [&b"h2"[..], b"h2c", b"h3", b"http"].iter().any(|http| http.eq_ignore_ascii_case(name))
}
