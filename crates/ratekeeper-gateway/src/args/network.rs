//! Networks of trusted proxies.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

/// A network, or a single address.
pub(super) fn parse(text: &str) -> Result<IpNet, String> {
    let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    let network = network.map_err(|_| "this is neither a network, such as 10.0.0.0/8, nor an address")?;
    // Peers are compared as IPv4 where possible, so networks have to be, too.
    let IpNet::V6(v6) = network else { return Ok(network.trunc()) };
    match (v6.addr().to_ipv4_mapped(), v6.prefix_len().checked_sub(96)) {
        (None, _) => Ok(network.trunc()),
        (Some(v4), Some(bits)) => {
            Ipv4Net::new(v4, bits).map(|network| network.trunc().into()).map_err(|error| error.to_string())
        }
        (Some(_), None) => Err("this has all of IPv4 in it; write the network as IPv4".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4_is_ipv4_however_it_is_written() {
        for text in ["10.0.0.0/8", "10.1.2.3/8", "::ffff:10.0.0.0/104"] {
            assert_eq!(parse(text).unwrap().to_string(), "10.0.0.0/8", "{text}");
        }
        assert_eq!(parse("::ffff:192.0.2.1").unwrap().to_string(), "192.0.2.1/32");
        assert_eq!(parse("fd00::1/8").unwrap().to_string(), "fd00::/8");
        assert!(parse("::ffff:10.0.0.0/8").is_err());
        assert!(parse("10.0.0.0/33").is_err());
        assert!(parse("localhost").is_err());
    }
}
