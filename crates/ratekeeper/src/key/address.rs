//! Addresses as keys.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::Extensions;
use ratekeeper_core::Key;

use super::{Extracted, KeyExtractor};
use crate::request::RequestHead;
use crate::request::peer::{canonical_ip, peer};

/// The part of an address that identifies a caller: all of an IPv4 address, but only the network part of an
/// IPv6 address, because whoever has one address has all 2⁶⁴ addresses of its network.
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

    /// The key of an address, which becomes IPv4 before anything is cut off: otherwise all of IPv4 would be
    /// one key.
    #[inline(never)]
    pub(super) fn key(self, address: IpAddr) -> Key {
        Key::from(match canonical_ip(address) {
            IpAddr::V4(v4) => IpAddr::V4(v4),
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.0)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
            }
        })
    }
}

/// See [`peer_ip`].
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct PeerIp {
    prefix: Prefix,
}

/// The address of the peer, at the other end of the connection.
///
/// Behind a proxy, this is the proxy's address, and all clients share one key; see
/// [`client_ip`](super::client_ip).
///
/// The address is read from the request's extensions: from [`PeerAddr`](super::PeerAddr), or else, with the `axum` feature,
/// from `ConnectInfo<SocketAddr>`, which is present if the server is started with
/// `into_make_service_with_connect_info::<SocketAddr>()`.
pub fn peer_ip() -> PeerIp {
    PeerIp::default()
}

impl PeerIp {
    /// How many bits of an IPv6 address count. 64 by default; more than 128 means 128.
    pub fn ipv6_prefix(self, bits: u8) -> Self {
        Self { prefix: Prefix::new(bits) }
    }

    /// The key that an address is counted by. For IPv6, that is the key of its network.
    ///
    /// Use it with [`Limiter::reset`](crate::Limiter::reset) and similar methods.
    ///
    /// ```
    /// # async fn pardon(limiter: ratekeeper::Limiter) -> Result<(), ratekeeper::LimiterError> {
    /// use std::net::IpAddr;
    /// use ratekeeper::key;
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
