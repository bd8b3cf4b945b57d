//! What keys are made from.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Key, Kind};

impl From<&str> for Key {
    #[inline]
    fn from(text: &str) -> Self {
        Self::from(text.as_bytes())
    }
}

impl From<String> for Key {
    fn from(text: String) -> Self {
        Self::from(text.as_bytes())
    }
}

impl From<&String> for Key {
    #[inline]
    fn from(text: &String) -> Self {
        Self::from(text.as_bytes())
    }
}

impl From<&[u8]> for Key {
    #[inline]
    fn from(bytes: &[u8]) -> Self {
        Self::of(Kind::Text, bytes)
    }
}

impl From<Vec<u8>> for Key {
    fn from(bytes: Vec<u8>) -> Self {
        Self::from(bytes.as_slice())
    }
}

impl<const N: usize> From<[u8; N]> for Key {
    /// Bytes such as those of a UUID.
    fn from(bytes: [u8; N]) -> Self {
        Self::from(bytes.as_slice())
    }
}

impl<const N: usize> From<&[u8; N]> for Key {
    fn from(bytes: &[u8; N]) -> Self {
        Self::from(bytes.as_slice())
    }
}

impl From<Cow<'_, str>> for Key {
    fn from(text: Cow<'_, str>) -> Self {
        Self::from(&*text)
    }
}

impl From<u64> for Key {
    fn from(number: u64) -> Self {
        Self::of(Kind::Number, &number.to_be_bytes())
    }
}

impl From<u32> for Key {
    fn from(number: u32) -> Self {
        Self::from(u64::from(number))
    }
}

impl From<i64> for Key {
    /// A number that is not negative makes the same key as the equal `u64`.
    fn from(number: i64) -> Self {
        match u64::try_from(number) {
            Ok(number) => Self::from(number),
            Err(_) => Self::of(Kind::Negative, &number.unsigned_abs().to_be_bytes()),
        }
    }
}

impl From<i32> for Key {
    fn from(number: i32) -> Self {
        Self::from(i64::from(number))
    }
}

impl From<IpAddr> for Key {
    /// The address, except that an IPv4-mapped IPv6 address becomes the IPv4 address.
    #[inline]
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self::of(Kind::V4, &v4.octets()),
            IpAddr::V6(v6) => Self::of(Kind::V6, &v6.octets()),
        }
    }
}

impl From<Ipv4Addr> for Key {
    #[inline]
    fn from(address: Ipv4Addr) -> Self {
        Self::of(Kind::V4, &address.octets())
    }
}

impl From<Ipv6Addr> for Key {
    /// The address, except that an IPv4-mapped one becomes the IPv4 address.
    #[inline]
    fn from(address: Ipv6Addr) -> Self {
        Self::from(IpAddr::V6(address))
    }
}

impl From<()> for Key {
    fn from((): ()) -> Self {
        Self::GLOBAL
    }
}

impl From<&Self> for Key {
    fn from(key: &Self) -> Self {
        *key
    }
}

impl<A: Into<Self>, B: Into<Self>> From<(A, B)> for Key {
    fn from((a, b): (A, B)) -> Self {
        a.into().and(b)
    }
}

impl<A: Into<Self>, B: Into<Self>, C: Into<Self>> From<(A, B, C)> for Key {
    fn from((a, b, c): (A, B, C)) -> Self {
        a.into().and(b).and(c)
    }
}

impl<A: Into<Self>, B: Into<Self>, C: Into<Self>, D: Into<Self>> From<(A, B, C, D)> for Key {
    fn from((a, b, c, d): (A, B, C, D)) -> Self {
        a.into().and(b).and(c).and(d)
    }
}
