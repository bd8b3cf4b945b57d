//! The peer's address.

use super::super::peer_ip;
use super::{from_peer, key_of, shown, to};

fn peer(address: &str) -> String {
    shown(&peer_ip(), &from_peer(address, &[]))
}

#[test]
fn an_ipv4_peer_is_counted_by_its_whole_address_and_not_by_its_port() {
    assert_eq!(peer("192.0.2.7"), "192.0.2.7");
    assert_ne!(peer("192.0.2.7"), peer("192.0.2.8"));
}

#[test]
fn ipv6_peers_are_counted_by_their_slash_64() {
    assert_eq!(peer("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    assert_eq!(peer("2001:db8:1:2::1"), peer("2001:db8:1:2:ffff:ffff:ffff:ffff"));
    assert_ne!(peer("2001:db8:1:2::1"), peer("2001:db8:1:3::1"));
}

#[test]
fn how_much_of_an_ipv6_address_counts_can_be_said() {
    let peer = |bits, address| shown(&peer_ip().ipv6_prefix(bits), &from_peer(address, &[]));
    assert_eq!(peer(56, "2001:db8:1:2ff::1"), "2001:db8:1:200::");
    assert_eq!(peer(48, "2001:db8:1:2ff::1"), "2001:db8:1::");
    assert_eq!(peer(128, "2001:db8:1:2ff::1"), "2001:db8:1:2ff::1");
    assert_eq!(peer(255, "2001:db8:1:2ff::1"), "2001:db8:1:2ff::1");
    assert_eq!(peer(0, "2001:db8:1:2ff::1"), "::");
    // It does not affect IPv4.
    assert_eq!(peer(0, "192.0.2.7"), "192.0.2.7");
    assert_eq!(peer(56, "::ffff:192.0.2.7"), "192.0.2.7");
}

#[test]
fn ipv4_mapped_peers_are_ipv4_before_anything_is_cut_off() {
    // If the prefix were cut off first, all of IPv4 would be one key.
    assert_eq!(peer("::ffff:192.0.2.7"), "192.0.2.7");
    assert_eq!(peer("::ffff:102:304"), "1.2.3.4");
    assert_ne!(peer("::ffff:1.2.3.4"), peer("::ffff:1.2.3.5"));
    assert_eq!(peer("::ffff:1.2.3.4"), peer("1.2.3.4"));
    // An IPv4-compatible address, which is deprecated, is treated as plain IPv6.
    assert_eq!(peer("::1.2.3.4"), "::");
}

/// All of IPv4 that comes through a translator (NAT64, SIIT) has the same 96 bits in front.
#[test]
fn translated_peers_are_ipv4_before_anything_is_cut_off() {
    assert_eq!(peer("64:ff9b::192.0.2.7"), "192.0.2.7");
    assert_eq!(peer("64:ff9b::102:304"), "1.2.3.4");
    assert_ne!(peer("64:ff9b::1.2.3.4"), peer("64:ff9b::1.2.3.5"));
    assert_eq!(peer("64:ff9b::1.2.3.4"), peer("1.2.3.4"));
    // Only these 96 bits. A network of one's own (RFC 8215) has the address where the operator put it.
    assert_eq!(peer("64:ff9b:0:0:0:1:102:304"), "64:ff9b::");
    assert_eq!(peer("64:ff9b:1::1.2.3.4"), "64:ff9b:1::");
    assert_eq!(peer("64:ff9c::1.2.3.4"), "64:ff9c::");
}

#[test]
fn forwarding_fields_are_nothing_to_the_peers_address() {
    let lines = [
        ("x-forwarded-for", "198.51.100.1"),
        ("forwarded", "for=198.51.100.2"),
        ("x-real-ip", "198.51.100.3"),
        ("cf-connecting-ip", "198.51.100.4"),
    ];
    assert_eq!(shown(&peer_ip(), &from_peer("192.0.2.7", &lines)), "192.0.2.7");
}

#[test]
fn a_request_without_a_known_peer_has_no_such_key() {
    assert_eq!(key_of(&peer_ip(), &to("/")), None);
}

#[cfg(feature = "axum")]
#[test]
fn the_peer_is_found_where_axum_puts_it() {
    use axum::extract::ConnectInfo;
    use axum::extract::connect_info::MockConnectInfo;
    use std::net::SocketAddr;

    let address: SocketAddr = "192.0.2.7:80".parse().unwrap();
    let mut request = to("/");
    request.extensions_mut().insert(ConnectInfo(address));
    assert_eq!(shown(&peer_ip(), &request), "192.0.2.7");
    let mut request = to("/");
    request.extensions_mut().insert(MockConnectInfo(address));
    assert_eq!(shown(&peer_ip(), &request), "192.0.2.7");
}

/// To reset a client by its address, one has to find the key that it is counted by.
#[test]
fn the_key_of_an_address_is_that_of_a_request_from_it() {
    use super::super::{TrustedProxies, client_ip, peer_ip};
    for address in ["203.0.113.9", "2001:db8::7", "::ffff:203.0.113.9", "64:ff9b::203.0.113.9"] {
        let request = super::from_peer(address, &[]);
        let address = address.parse().unwrap();
        for bits in [64, 48, 128] {
            let peer = peer_ip().ipv6_prefix(bits);
            assert_eq!(super::shown(&peer, &request), peer.key(address).to_string());
            let client = client_ip(TrustedProxies::networks(["10.0.0.0/8"]).unwrap()).ipv6_prefix(bits);
            assert_eq!(super::shown(&client, &request), client.key(address).to_string());
        }
    }
}

#[test]
fn the_head_of_a_request_tells_the_address_of_its_peer() {
    let of =
        |address: &str| crate::RequestHead::from(&from_peer(address, &[])).peer_ip().unwrap().to_string();
    assert_eq!(of("2001:db8::7"), "2001:db8::7");
    assert_eq!(of("::ffff:192.0.2.7"), "192.0.2.7");
    assert_eq!(crate::RequestHead::from(&to("/")).peer_ip(), None);
}
