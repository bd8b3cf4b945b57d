//! Addresses as keys.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::Extensions;
use tollgate_core::Key;

use super::{Extracted, KeyExtractor};
use crate::RequestHead;

/// Who has the address, as far as limiting goes: all of IPv4, but of IPv6 the part that belongs to one
/// network, since whoever has one has all 2⁶⁴ addresses in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prefix(u8);

impl Default for Prefix {
    /// 64: an interface identifier has 64 bits (RFC 4291, section 2.5.1).
    fn default() -> Self {
        Self(64)
    }
}

impl Prefix {
    pub(super) const fn new(bits: u8) -> Self {
        Self(if bits > 128 { 128 } else { bits })
    }

    /// The key of an address. What is IPv4 in IPv6's clothing is IPv4, before anything is cut off:
    /// otherwise all of IPv4 would be one key.
    #[inline(never)]
    pub(super) fn key(self, address: IpAddr) -> Key {
        Key::from(match address.to_canonical() {
            IpAddr::V4(v4) => IpAddr::V4(v4),
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.0)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
            }
        })
    }
}

/// The peer's address, for servers that do not put it where axum does, and for those that know better, such
/// as from the PROXY protocol.
///
/// Insert it into the extensions of each request, and [`peer_ip`] finds it there, before what axum knows.
///
/// ```
/// use tollgate::key::PeerAddr;
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(PeerAddr("192.0.2.7:1234".parse()?));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddr(pub SocketAddr);

/// The address of the peer: [`PeerAddr`], which somebody put there on purpose, else what axum knows.
#[inline]
pub(super) fn peer(extensions: &Extensions) -> Option<&SocketAddr> {
    if let Some(PeerAddr(address)) = extensions.get() {
        return Some(address);
    }
    #[cfg(feature = "axum")]
    return crate::axum::peer(extensions);
    #[cfg(not(feature = "axum"))]
    None
}

/// See [`peer_ip`].
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct PeerIp {
    prefix: Prefix,
}

/// The address of the peer: whoever is at the other end of the connection.
///
/// Behind a proxy that is the proxy, and all clients are one; see [`client_ip`](super::client_ip).
///
/// The address is found in the request's extensions: as [`PeerAddr`], else, with the `axum` feature, as
/// `ConnectInfo<SocketAddr>`, which is there if the server is started with
/// `into_make_service_with_connect_info::<SocketAddr>()`.
pub fn peer_ip() -> PeerIp {
    PeerIp::default()
}

impl PeerIp {
    /// How many bits of an IPv6 address count; 64 unless it is said. More than 128 are 128.
    pub fn ipv6_prefix(self, bits: u8) -> Self {
        Self { prefix: Prefix::new(bits) }
    }

    /// The key that an address is counted by: of IPv6, that of its network. For [`Limiter::reset`](crate::Limiter::reset) and
    /// its like.
    ///
    /// ```
    /// # async fn pardon(limiter: tollgate::Limiter) -> Result<(), tollgate::LimiterError> {
    /// use std::net::IpAddr;
    /// use tollgate::key;
    ///
    /// let address: IpAddr = "2001:db8::7".parse().expect("an address");
    /// limiter.reset("default", key::peer_ip().key(address)).await?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn key(&self, address: IpAddr) -> Key {
        self.prefix.key(address)
    }

    /// The key of a request with these extensions.
    #[inline(always)]
    pub(super) fn of(self, extensions: &Extensions) -> Extracted {
        match peer(extensions) {
            Some(SocketAddr::V4(address)) => Extracted::Key(Key::from(*address.ip())),
            Some(SocketAddr::V6(address)) => Extracted::Key(self.prefix.key(IpAddr::V6(*address.ip()))),
            None => Extracted::Missing,
        }
    }
}

impl KeyExtractor for PeerIp {
    #[inline]
    fn extract(&self, head: &RequestHead<'_>) -> Extracted {
        self.of(head.extensions())
    }
}
