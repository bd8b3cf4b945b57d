//! Addresses as proxies write them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::canonical_ip;

/// An address, with or without a port: `192.0.2.1`, `192.0.2.1:80`, `[2001:db8::1]:80`, `2001:db8::1`.
pub(super) fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        if !port.is_empty() && !is_port(port.strip_prefix(':')?) {
            return None;
        }
        return v6(address);
    }
    if let Some(address) = v6(text) {
        return Some(address);
    }
    let address = match text.split_once(':') {
        Some((address, port)) if is_port(port) => address,
        Some(_) => return None,
        None => text,
    };
    address.parse::<Ipv4Addr>().ok().map(IpAddr::V4)
}

/// An IPv6 address. Its zone is dropped, because it has a meaning only on its own host.
fn v6(text: &str) -> Option<IpAddr> {
    let address = text.split_once('%').map_or(text, |(address, _)| address);
    address.parse::<Ipv6Addr>().ok().map(|address| canonical_ip(IpAddr::V6(address)))
}

/// A number, or an underscore and a name (RFC 7239, section 6).
fn is_port(text: &str) -> bool {
    match text.strip_prefix('_') {
        Some(name) => {
            !name.is_empty()
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        }
        None => text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok(),
    }
}
