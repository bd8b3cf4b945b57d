//! Networks of trusted proxies.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};
use ratekeeper::key::canonical_ip;

/// A network, or a single address.
pub(super) fn parse(text: &str) -> Result<IpNet, String> {
    let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let network = network.map_err(|_| "this is neither a network, such as 10.0.0.0/8, nor an address")?;
    // Peers are compared as IPv4 where they stand for it, so networks have to be, too.
    match (network.addr(), canonical_ip(network.addr()), network.prefix_len().saturating_sub(96)) {
        (IpAddr::V6(_), IpAddr::V4(_), 0) => {
            Err("this has all of IPv4 in it; write the network as IPv4".to_owned())
        }
        (IpAddr::V6(_), IpAddr::V4(v4), bits) => {
            Ipv4Net::new(v4, bits).map(|network| network.trunc().into()).map_err(|error| error.to_string())
        }
        _ => Ok(network.trunc()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_is_ipv4_however_it_is_written() {
        for text in ["10.0.0.0/8", "10.1.2.3/8", "::ffff:10.0.0.0/104", "64:ff9b::10.0.0.0/104"] {
            assert_eq!(parse(text).unwrap().to_string(), "10.0.0.0/8", "{text}");
        }
        assert_eq!(parse("::ffff:192.0.2.1").unwrap().to_string(), "192.0.2.1/32");
        assert_eq!(parse("fd00::1/8").unwrap().to_string(), "fd00::/8");
        for text in ["::ffff:10.0.0.0/8", "::ffff:0.0.0.0/96", "64:ff9b::/96"] {
            assert!(parse(text).unwrap_err().contains("all of IPv4"), "{text}");
        }
        assert!(parse("10.0.0.0/33").is_err());
        assert!(parse("localhost").is_err());
    }
}
