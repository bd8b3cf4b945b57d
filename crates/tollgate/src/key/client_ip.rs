//! The address of the client behind proxies.

use std::net::{IpAddr, SocketAddr};

use http::HeaderName;
use ipnet::{IpNet, Ipv4Net};
use tollgate_core::Key;

use super::address::{Prefix, peer};
use super::forwarded::{self, Hop};
use super::{Extracted, KeyExtractor};
use crate::RequestHead;
use crate::error::ConfigError;

pub(crate) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Which proxies are believed, and what they say.
///
/// A proxy adds the address that it was connected from at the end of a field. What stands before that
/// may have been written by anybody, so the field is read from its end: over the proxies that are
/// trusted, to the first address that is not one of them.
///
/// One field is read, and no other in its place. It is `X-Forwarded-For` unless it is said.
///
/// ```
/// use tollgate::key::{self, TrustedProxies};
///
/// // A load balancer in 10.0.0.0/8.
/// let by_address = key::client_ip(TrustedProxies::networks(["10.0.0.0/8", "fd00::/8"])?);
/// // Two proxies, wherever they are, and no way around them.
/// let by_count = key::client_ip(TrustedProxies::hops(2));
/// // A CDN that says who the client is in a field of its own.
/// let by_field = key::client_ip(TrustedProxies::networks(["173.245.48.0/20"])?.in_field("cf-connecting-ip"));
/// # Ok::<(), tollgate::ConfigError>(())
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
    /// When a text is not a network, or is one that would trust more than was meant, such as
    /// `::ffff:10.0.0.0/8`, which has all of IPv4 in it.
    pub fn networks<T: AsRef<str>>(networks: impl IntoIterator<Item = T>) -> Result<Self, ConfigError> {
        let networks = networks.into_iter().map(|text| network(text.as_ref())).collect::<Result<_, _>>()?;
        Ok(Self { trust: Trust::Networks(networks), field: Field::XForwardedFor })
    }

    /// This many proxies, one behind the other, whatever their addresses.
    ///
    /// Only where the server cannot be reached but through all of them.
    pub fn hops(count: usize) -> Self {
        Self { trust: Trust::Hops(count), field: Field::XForwardedFor }
    }

    /// The proxies use `Forwarded` (RFC 7239).
    pub fn in_forwarded(self) -> Self {
        Self { field: Field::Forwarded, ..self }
    }

    /// The proxies put the client's address, and nothing else, into a field of this name, and replace
    /// what a client sent under the name.
    ///
    /// # Panics
    ///
    /// When the name is not a lower-case name of a field.
    pub fn in_field(self, name: &'static str) -> Self {
        self.in_field_named(HeaderName::from_static(name))
    }

    /// As [`in_field`](Self::in_field), for names that are not known before the program runs.
    pub fn in_field_named(self, name: HeaderName) -> Self {
        Self { field: Field::Single(name), ..self }
    }

    /// The client's address. Wherever the field ends, or makes no sense, it is the last address that
    /// a trusted proxy vouches for. The peer may be unknown, as behind a Unix socket.
    fn client(&self, head: &RequestHead<'_>, peer: Option<IpAddr>) -> Option<IpAddr> {
        let headers = head.headers();
        match &self.field {
            Field::XForwardedFor => self.walk(peer, forwarded::x_forwarded_for(headers, &X_FORWARDED_FOR)),
            Field::Forwarded => self.walk(peer, forwarded::forwarded(headers, &http::header::FORWARDED)),
            Field::Single(name) => self.walk(peer, std::iter::once(forwarded::single(headers, name))),
        }
    }

    fn walk(&self, peer: Option<IpAddr>, hops: impl Iterator<Item = Hop>) -> Option<IpAddr> {
        let mut last = peer;
        for (passed, hop) in hops.enumerate() {
            if hop.is_none() || !self.trusts(last, passed) {
                break;
            }
            last = hop;
        }
        last
    }

    /// Whether what the proxy at this address says is believed, it being behind so many others.
    fn trusts(&self, address: Option<IpAddr>, passed: usize) -> bool {
        match &self.trust {
            Trust::Networks(networks) => address.is_some_and(|address| {
                let address = address.to_canonical();
                networks.iter().any(|network| network.contains(&address))
            }),
            Trust::Hops(count) => passed < *count,
        }
    }
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
    // Addresses are compared as IPv4 wherever they are, so the networks have to be, too.
    let IpNet::V6(v6) = network else { return Ok(network.trunc()) };
    match (v6.addr().to_ipv4_mapped(), v6.prefix_len().checked_sub(96)) {
        (None, _) => Ok(network.trunc()),
        (Some(v4), Some(bits)) => {
            Ipv4Net::new(v4, bits).map(|network| IpNet::V4(network.trunc())).map_err(|_| error("bad prefix"))
        }
        (Some(_), None) => Err(error(
            "the prefix of an IPv4-mapped network is at least 96, and this one has all of IPv4 in it; \
             write the network as IPv4",
        )),
    }
}

/// See [`client_ip`].
#[derive(Clone, Debug)]
#[must_use]
pub struct ClientIp {
    proxies: TrustedProxies,
    prefix: Prefix,
}

/// The address of the client, as proxies that are trusted tell it.
///
/// A peer that is not trusted is the client itself, whatever it says.
pub fn client_ip(proxies: TrustedProxies) -> ClientIp {
    ClientIp { proxies, prefix: Prefix::default() }
}

impl ClientIp {
    /// How many bits of an IPv6 address count; 64 unless it is said. More than 128 are 128.
    pub fn ipv6_prefix(self, bits: u8) -> Self {
        Self { prefix: Prefix::new(bits), ..self }
    }

    /// The key that an address is counted by: of IPv6, that of its network. See [`PeerIp::key`](super::PeerIp::key).
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
