//! The address of the peer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::Extensions;

/// The first 96 bits of an IPv4 address behind a translator (RFC 6052, section 2.1).
const TRANSLATED: u128 = 0x0064_ff9b << 64;

/// The form in which an address is counted and trusted: IPv6 that stands for an IPv4 address becomes that.
///
/// These are IPv4-mapped addresses (`::ffff:0:0/96`) and those that translators (NAT64, SIIT) use for all of
/// IPv4 (`64:ff9b::/96`). Otherwise one caller would have two keys, and all of IPv4 would be in one /64.
///
/// A network that an operator chose for its own translator, such as one in `64:ff9b:1::/48` (RFC 8215), stays
/// IPv6: nothing in the address says where in it the IPv4 address is.
///
/// ```
/// use std::net::IpAddr;
///
/// let translated: IpAddr = "64:ff9b::192.0.2.7".parse()?;
/// assert_eq!(ratekeeper::key::canonical_ip(translated).to_string(), "192.0.2.7");
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[must_use]
pub fn canonical_ip(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => ipv4_of(v6).map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// The IPv4 address that an IPv6 address stands for.
pub(crate) fn ipv4_of(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let is_translated = address.to_bits() >> 32 == TRANSLATED;
    if is_translated { Some(Ipv4Addr::from_bits(address.to_bits() as u32)) } else { address.to_ipv4_mapped() }
}

/// The peer's address, for servers that do not store it where axum does.
///
/// Also for servers that know it better, for example from the PROXY protocol.
///
/// Insert it into the extensions of each request. [`peer_ip`](crate::key::peer_ip) looks for it there before it looks at what axum
/// knows.
///
/// ```
/// use ratekeeper::key::PeerAddr;
///
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(PeerAddr("192.0.2.7:1234".parse()?));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddr(pub SocketAddr);

/// The address of the peer: [`PeerAddr`], which was inserted on purpose, otherwise what axum knows.
#[inline]
pub(crate) fn peer(extensions: &Extensions) -> Option<&SocketAddr> {
    if let Some(PeerAddr(address)) = extensions.get() {
        return Some(address);
    }
    #[cfg(feature = "axum")]
    return super::axum::peer(extensions);
    #[cfg(not(feature = "axum"))]
    None
}
