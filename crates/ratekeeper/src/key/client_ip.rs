//! The address of the client behind proxies.

use std::net::{IpAddr, SocketAddr};

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName, HeaderValue};
use ipnet::{IpNet, Ipv4Net};
use ratekeeper_core::Key;

use super::address::Prefix;
use super::forwarded::Elements;
use super::request::field_name;
use super::{Extracted, KeyExtractor, node};
use crate::error::ConfigError;
use crate::request::RequestHead;
use crate::request::peer::{canonical_ip, ipv4_of, peer};

pub(crate) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Which proxies are trusted, and in which field they report addresses.
///
/// A proxy appends the address that it was connected from to a field. Anybody may have written what stands
/// before that, so the field is read from its end: past the trusted proxies, to the first address that is not
/// one of them.
///
/// Only one field is read, and no other in its place. It is `X-Forwarded-For` by default.
///
/// ```
/// use ratekeeper::key::{self, TrustedProxies};
///
/// // A load balancer in 10.0.0.0/8.
/// let by_address = key::client_ip(TrustedProxies::networks(["10.0.0.0/8", "fd00::/8"])?);
/// // Two proxies, wherever they are, and no way around them.
/// let by_count = key::client_ip(TrustedProxies::hops(2));
/// // A CDN that reports the client in its own field.
/// let by_field = key::client_ip(TrustedProxies::networks(["173.245.48.0/20"])?.in_field("cf-connecting-ip"));
/// # Ok::<(), ratekeeper::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct TrustedProxies {
    trust: Trust,
    field: Field,
}

#[derive(Clone, Debug)]
enum Trust {
    Networks(Vec<IpNet>),
    Hops(usize),
}

#[derive(Clone, Debug)]
enum Field {
    XForwardedFor,
    Forwarded,
    Single(HeaderName),
}

impl TrustedProxies {
    /// Proxies by their addresses: networks such as `10.0.0.0/8`, or single addresses.
    ///
    /// # Errors
    ///
    /// If a string is not a network, or is one that would trust more than intended, such as
    /// `::ffff:10.0.0.0/8`, which contains all of IPv4.
    pub fn networks<T: AsRef<str>>(networks: impl IntoIterator<Item = T>) -> Result<Self, ConfigError> {
        let networks = networks.into_iter().map(|text| network(text.as_ref())).collect::<Result<_, _>>()?;
        Ok(Self { trust: Trust::Networks(networks), field: Field::XForwardedFor })
    }

    /// This many proxies, one behind the other, whatever their addresses.
    ///
    /// Use it only if the server cannot be reached except through all of them.
    pub fn hops(count: usize) -> Self {
        Self { trust: Trust::Hops(count), field: Field::XForwardedFor }
    }

    /// The proxies use `Forwarded` (RFC 7239).
    ///
    /// Each of them appends its own element, and nothing that a client writes before that affects how it is
    /// read. A client cannot escape from within an element either, unless a proxy copies what the client
    /// sends, such as the host, without escaping: have such proxies leave it out, or refuse hosts with quotes
    /// and backslashes.
    pub fn in_forwarded(self) -> Self {
        Self { field: Field::Forwarded, ..self }
    }

    /// The proxies put the client's address, and nothing else, into a field of this name.
    ///
    /// They must replace whatever a client sent under this name. The case of the name makes no difference.
    ///
    /// # Panics
    ///
    /// If it is not the name of a header field.
    #[track_caller]
    pub fn in_field(self, name: &str) -> Self {
        self.in_field_named(field_name(name))
    }

    /// Like [`in_field`](Self::in_field), for names that may be wrong.
    pub fn in_field_named(self, name: HeaderName) -> Self {
        Self { field: Field::Single(name), ..self }
    }

    /// The client's address. If the field ends or is malformed somewhere, it is the last address that a
    /// trusted proxy vouches for. The peer may be unknown, for example behind a Unix socket.
    fn client(&self, head: &RequestHead<'_>, peer: Option<IpAddr>) -> Option<IpAddr> {
        let headers = head.headers();
        match &self.field {
            Field::XForwardedFor => {
                let entries =
                    lines(headers, &X_FORWARDED_FOR).flat_map(|line| line.rsplit(|byte| *byte == b','));
                self.walk(peer, entries.map(entry))
            }
            Field::Forwarded => self.walk(peer, lines(headers, &FORWARDED).flat_map(Elements::of)),
            Field::Single(name) => {
                // If there are two lines, somebody other than the proxy wrote one of them.
                let mut lines = lines(headers, name);
                let only = lines.next().filter(|_| lines.next().is_none());
                self.walk(peer, only.into_iter().map(entry))
            }
        }
    }

    /// Walks from the peer past the trusted proxies, along the addresses that they report, nearest first. No
    /// address is read before whoever wrote it is known to be trusted.
    pub(super) fn walk(
        &self,
        peer: Option<IpAddr>,
        reported: impl Iterator<Item = Option<IpAddr>>,
    ) -> Option<IpAddr> {
        let (mut last, mut passed) = (peer, 0);
        let mut reported = reported.map_while(|address| address);
        while self.trusts(last, passed) {
            let Some(address) = reported.next() else { break };
            (last, passed) = (Some(address), passed + 1);
        }
        last
    }

    /// Whether the proxy at this address, which is behind `passed` others, is trusted.
    fn trusts(&self, address: Option<IpAddr>, passed: usize) -> bool {
        match &self.trust {
            Trust::Networks(networks) => address.is_some_and(|address| {
                let address = canonical_ip(address);
                networks.iter().any(|network| network.contains(&address))
            }),
            Trust::Hops(count) => passed < *count,
        }
    }
}

/// The lines of a field, last first. Several lines form one list, in order.
fn lines<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> + use<'a> {
    headers.get_all(name).into_iter().rev().map(HeaderValue::as_bytes)
}

/// An entry that is just an address.
fn entry(entry: &[u8]) -> Option<IpAddr> {
    node::address(std::str::from_utf8(entry).ok()?)
}

fn network(text: &str) -> Result<IpNet, ConfigError> {
    let error = |reason: &str| ConfigError::Network { network: text.to_owned(), reason: reason.to_owned() };
    let network = match text.parse::<IpNet>() {
        Ok(network) => network,
        Err(_) => text
            .parse::<IpAddr>()
            .map(IpNet::from)
            .map_err(|_| error("it is neither a network, such as `10.0.0.0/8`, nor an address"))?,
    };
    // Addresses that stand for IPv4 are compared as IPv4, so such networks have to be converted, too.
    let IpNet::V6(v6) = network else { return Ok(network.trunc()) };
    match (ipv4_of(v6.addr()), v6.prefix_len().saturating_sub(96)) {
        (None, _) => Ok(network.trunc()),
        (Some(_), 0) => Err(error(
            "it stands for IPv4, so its prefix is more than 96, and this one has all of IPv4 in it; \
             write the network as IPv4",
        )),
        (Some(v4), bits) => {
            Ipv4Net::new(v4, bits).map(|network| IpNet::V4(network.trunc())).map_err(|_| error("bad prefix"))
        }
    }
}

/// See [`client_ip`].
#[derive(Clone, Debug)]
#[must_use]
pub struct ClientIp {
    proxies: TrustedProxies,
    prefix: Prefix,
}

/// The address of the client, as reported by trusted proxies.
///
/// A peer that is not trusted is itself the client, whatever it sends.
pub fn client_ip(proxies: TrustedProxies) -> ClientIp {
    ClientIp { proxies, prefix: Prefix::default() }
}

impl ClientIp {
    /// How many bits of an IPv6 address count. 64 by default; more than 128 means 128.
    pub fn ipv6_prefix(self, bits: u8) -> Self {
        Self { prefix: Prefix::new(bits), ..self }
    }

    /// The key that an address is counted by. For IPv6, that is the key of its network. See
    /// [`PeerIp::key`](super::PeerIp::key).
    #[must_use]
    pub fn key(&self, address: IpAddr) -> Key {
        self.prefix.key(address)
    }
}

impl KeyExtractor for ClientIp {
    fn extract(&self, head: &RequestHead<'_>) -> Extracted {
        let client = self.proxies.client(head, peer(head.extensions()).map(SocketAddr::ip));
        client.map(|address| self.prefix.key(address)).into()
    }
}
