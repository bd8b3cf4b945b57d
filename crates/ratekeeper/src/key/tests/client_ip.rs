//! The client's address behind proxies: whom to trust.

use super::super::{TrustedProxies, client_ip};
use super::{from_peer, key_of, shown, with};

const PROXY: &str = "10.0.0.1";

fn trusted() -> TrustedProxies {
    TrustedProxies::networks(["10.0.0.0/8", "fd00::/8"]).unwrap()
}

/// The key of a request from a peer, with lines of `X-Forwarded-For`.
fn client(proxies: TrustedProxies, peer: &str, lines: &[&str]) -> String {
    let lines: Vec<_> = lines.iter().map(|line| ("x-forwarded-for", *line)).collect();
    shown(&client_ip(proxies), &from_peer(peer, &lines))
}

#[test]
fn the_last_address_that_is_no_trusted_proxy_is_the_client() {
    for (lines, is) in [
        (&["203.0.113.9"][..], "203.0.113.9"),
        (&["203.0.113.9, 10.0.0.2"], "203.0.113.9"),
        (&["203.0.113.9,10.0.0.2 ,\t10.0.0.3"], "203.0.113.9"),
        (&["203.0.113.9, fd00::2"], "203.0.113.9"),
        // All are trusted, so the first of them is the client.
        (&["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
    ] {
        assert_eq!(client(trusted(), PROXY, lines), is, "{lines:?}");
    }
}

#[test]
fn what_a_client_writes_before_the_proxy_does_not_count() {
    // The leftmost entry is the client's own invention (CVE-2026-110724 and others).
    for forged in ["1.1.1.1", "10.0.0.9", "1.1.1.1, 10.0.0.9", "127.0.0.1, ::1", "unknown", "\"", ""] {
        let line = format!("{forged}, 203.0.113.9");
        assert_eq!(client(trusted(), PROXY, &[&line]), "203.0.113.9", "{forged}");
        assert_eq!(client(TrustedProxies::hops(1), PROXY, &[&line]), "203.0.113.9", "{forged}");
    }
}

#[test]
fn several_lines_are_one_list_in_their_order() {
    assert_eq!(client(trusted(), PROXY, &["1.1.1.1", "203.0.113.9"]), "203.0.113.9");
    assert_eq!(client(trusted(), PROXY, &["1.1.1.1", "203.0.113.9, 10.0.0.3", "10.0.0.2"]), "203.0.113.9");
    assert_eq!(client(TrustedProxies::hops(2), PROXY, &["1.1.1.1, 203.0.113.9", "10.0.0.2"]), "203.0.113.9");
}

#[test]
fn a_peer_that_is_not_trusted_is_the_client_whatever_it_says() {
    assert_eq!(client(trusted(), "192.0.2.7", &["203.0.113.9"]), "192.0.2.7");
    assert_eq!(client(trusted(), "192.0.2.7", &["203.0.113.9, 10.0.0.2"]), "192.0.2.7");
    assert_eq!(client(trusted(), "11.0.0.1", &["203.0.113.9"]), "11.0.0.1");
    assert_eq!(client(TrustedProxies::hops(0), "192.0.2.7", &["203.0.113.9"]), "192.0.2.7");
    let nobody = TrustedProxies::networks(Vec::<String>::new()).unwrap();
    assert_eq!(client(nobody, "192.0.2.7", &["203.0.113.9"]), "192.0.2.7");
}

#[test]
fn an_entry_that_is_no_address_stops_at_the_last_trusted_one() {
    // If it were skipped, an entry that the client wrote would be next.
    for bad in ["unknown", "_hidden", "", "203.0.113", "203.0.113.9.9", "localhost", "1.1.1.1:http", "\u{e9}"]
    {
        let line = format!("1.1.1.1, {bad}, 10.0.0.2");
        assert_eq!(client(trusted(), PROXY, &[&line]), "10.0.0.2", "{bad:?}");
        let line = format!("1.1.1.1, {bad}");
        assert_eq!(client(trusted(), PROXY, &[&line]), PROXY, "{bad:?}");
    }
}

#[test]
fn an_entry_may_have_a_port() {
    // If `ip:port` were not recognized as an address, an entry that the client wrote would be next.
    for (entry, is) in [
        ("203.0.113.9:4711", "203.0.113.9"),
        ("[2001:db8:1:2::9]:4711", "2001:db8:1:2::"),
        ("[2001:db8:1:2::9]", "2001:db8:1:2::"),
        ("2001:db8:1:2::9", "2001:db8:1:2::"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("[::ffff:203.0.113.9]:80", "203.0.113.9"),
    ] {
        assert_eq!(client(trusted(), PROXY, &[&format!("1.1.1.1, {entry}")]), is, "{entry}");
    }
    for bad in [
        "203.0.113.9:",
        "203.0.113.9:99999",
        "203.0.113.9:+80",
        "[2001:db8::9",
        "[2001:db8::9]x",
        "[203.0.113.9]:80",
        "[]",
    ] {
        assert_eq!(client(trusted(), PROXY, &[&format!("1.1.1.1, {bad}")]), PROXY, "{bad}");
    }
}

#[test]
fn a_zone_is_no_part_of_an_address() {
    for entry in ["fe80::9%eth0", "[fe80::9%eth0]:80", "[fe80::9%25eth0]", "fe80::9%"] {
        assert_eq!(client(trusted(), PROXY, &[entry]), "fe80::", "{entry}");
    }
    assert_eq!(client(trusted(), PROXY, &["203.0.113.9%eth0"]), PROXY);
}

#[test]
fn hops_are_counted_from_the_end() {
    let line = "1.1.1.1, 203.0.113.9, 192.0.2.2, 192.0.2.3";
    for (hops, is) in [(0, PROXY), (1, "192.0.2.3"), (2, "192.0.2.2"), (3, "203.0.113.9"), (4, "1.1.1.1")] {
        assert_eq!(client(TrustedProxies::hops(hops), PROXY, &[line]), is, "{hops}");
    }
}

#[test]
fn a_list_too_short_for_the_hops_ends_at_its_last_address() {
    assert_eq!(client(TrustedProxies::hops(3), PROXY, &["203.0.113.9, 192.0.2.2"]), "203.0.113.9");
    assert_eq!(client(TrustedProxies::hops(3), PROXY, &[]), PROXY);
    assert_eq!(client(TrustedProxies::hops(3), PROXY, &[""]), PROXY);
    assert_eq!(client(TrustedProxies::hops(usize::MAX), PROXY, &["203.0.113.9"]), "203.0.113.9");
}

#[test]
fn one_field_is_read_and_no_other_in_its_place() {
    let lines =
        [("forwarded", "for=203.0.113.1"), ("x-real-ip", "203.0.113.2"), ("x-client-ip", "203.0.113.3")];
    assert_eq!(shown(&client_ip(trusted()), &from_peer(PROXY, &lines)), PROXY);
    let lines = [("x-forwarded-for", "203.0.113.1"), ("x-real-ip", "203.0.113.2")];
    assert_eq!(shown(&client_ip(trusted().in_forwarded()), &from_peer(PROXY, &lines)), PROXY);
    let field = trusted().in_field("cf-connecting-ip");
    assert_eq!(shown(&client_ip(field), &from_peer(PROXY, &lines)), PROXY);
}

#[test]
fn a_field_of_one_address_counts_only_if_it_is_one_address() {
    let key = client_ip(trusted().in_field("cf-connecting-ip"));
    for (lines, is) in [
        (&["203.0.113.9"][..], "203.0.113.9"),
        (&[" 203.0.113.9:80 "], "203.0.113.9"),
        (&["2001:db8:1:2::9"], "2001:db8:1:2::"),
        (&["::ffff:203.0.113.9"], "203.0.113.9"),
        // Sent twice, or as a list, it was written by somebody else as well.
        (&["203.0.113.9", "1.1.1.1"], PROXY),
        (&["203.0.113.9", "203.0.113.9"], PROXY),
        (&["1.1.1.1, 203.0.113.9"], PROXY),
        (&["unknown"], PROXY),
        (&[""], PROXY),
        (&[], PROXY),
    ] {
        let lines: Vec<_> = lines.iter().map(|line| ("cf-connecting-ip", *line)).collect();
        assert_eq!(shown(&key, &from_peer(PROXY, &lines)), is, "{lines:?}");
        assert_eq!(shown(&key, &from_peer("192.0.2.7", &lines)), "192.0.2.7", "{lines:?}");
    }
}

#[test]
fn clients_behind_a_proxy_are_cut_as_peers_are() {
    assert_eq!(client(trusted(), PROXY, &["2001:db8:1:2:3::9"]), "2001:db8:1:2::");
    assert_eq!(client(trusted(), PROXY, &["::ffff:102:304"]), "1.2.3.4");
    assert_eq!(client(trusted(), PROXY, &["64:ff9b::102:304"]), "1.2.3.4");
    let key = client_ip(trusted()).ipv6_prefix(56);
    let lines = [("x-forwarded-for", "2001:db8:1:2ff::9")];
    assert_eq!(shown(&key, &from_peer(PROXY, &lines)), "2001:db8:1:200::");
    let lines = [("x-forwarded-for", "::ffff:203.0.113.9")];
    assert_eq!(shown(&key, &from_peer(PROXY, &lines)), "203.0.113.9");
}

#[test]
fn a_proxy_is_trusted_in_whichever_clothing_its_address_comes() {
    for peer in ["10.0.0.1", "::ffff:10.0.0.1", "::ffff:a00:1", "64:ff9b::10.0.0.1", "fd00::1"] {
        assert_eq!(client(trusted(), peer, &["203.0.113.9, ::ffff:10.0.0.2"]), "203.0.113.9", "{peer}");
        assert_eq!(client(trusted(), peer, &["203.0.113.9, 64:ff9b::a00:2"]), "203.0.113.9", "{peer}");
    }
    for network in ["::ffff:10.0.0.0/104", "64:ff9b::10.0.0.0/104"] {
        let proxies = TrustedProxies::networks([network]).unwrap();
        for peer in ["10.9.9.9", "::ffff:10.9.9.9", "64:ff9b::10.9.9.9"] {
            assert_eq!(client(proxies.clone(), peer, &["203.0.113.9"]), "203.0.113.9", "{peer}");
        }
        assert_eq!(client(proxies, "11.0.0.1", &["203.0.113.9"]), "11.0.0.1");
    }
}

#[test]
fn single_addresses_and_networks_with_bits_beyond_their_prefix_can_be_trusted() {
    let proxies =
        TrustedProxies::networks(["10.1.2.3/8", "192.0.2.7", "2001:db8::7", "::ffff:192.0.2.8"]).unwrap();
    for peer in ["10.200.0.1", "192.0.2.7", "192.0.2.8", "2001:db8::7"] {
        assert_eq!(client(proxies.clone(), peer, &["203.0.113.9"]), "203.0.113.9", "{peer}");
    }
    for peer in ["192.0.2.6", "192.0.2.9"] {
        assert_eq!(client(proxies.clone(), peer, &["203.0.113.9"]), peer);
    }
    assert_eq!(client(proxies, "2001:db8::8", &["203.0.113.9"]), "2001:db8::");
}

#[test]
fn all_of_ipv6_is_nothing_of_ipv4() {
    let proxies = TrustedProxies::networks(["::/0"]).unwrap();
    assert_eq!(client(proxies.clone(), "2001:db8::1", &["203.0.113.9"]), "203.0.113.9");
    assert_eq!(client(proxies.clone(), "192.0.2.7", &["203.0.113.9"]), "192.0.2.7");
    assert_eq!(client(proxies, "::ffff:192.0.2.7", &["203.0.113.9"]), "192.0.2.7");
}

#[test]
fn a_network_that_would_trust_all_of_ipv4_by_mistake_is_refused_and_the_error_teaches() {
    for network in [
        "::ffff:10.0.0.0/8",
        "::ffff:0.0.0.0/95",
        "::ffff:0.0.0.0/96",
        "::ffff:a00:0/64",
        "::ffff:10.0.0.0/0",
        "64:ff9b::/96",
        "64:ff9b::10.0.0.0/8",
    ] {
        let error = TrustedProxies::networks(["10.0.0.0/8", network]).unwrap_err().to_string();
        assert!(error.contains(network), "{error}");
        assert!(error.contains("more than 96") && error.contains("write the network as IPv4"), "{error}");
    }
}

#[test]
fn what_is_no_network_is_refused_and_the_error_says_what_would_be() {
    for network in
        ["", "10.0.0.0/33", "10.0.0/8", "fd00::/129", "loopback", "10.0.0.1:80", "10.0.0.0/-1", "*"]
    {
        let error = TrustedProxies::networks([network]).unwrap_err().to_string();
        assert!(error.contains(&format!("`{network}`")), "{error}");
        assert!(error.contains("such as `10.0.0.0/8`"), "{error}");
    }
}

#[test]
fn a_peer_that_is_not_known_is_trusted_by_count_but_not_by_address() {
    // As behind a Unix socket.
    let request = with(&[("x-forwarded-for", b"198.51.100.1, 203.0.113.9")]);
    assert_eq!(key_of(&client_ip(trusted()), &request), None);
    let by_count = client_ip(TrustedProxies::hops(1));
    assert_eq!(key_of(&by_count, &request).unwrap().to_string(), "203.0.113.9");
    assert_eq!(key_of(&by_count, &with(&[])), None);
    assert_eq!(key_of(&client_ip(TrustedProxies::hops(0)), &request), None);
}

/// A client can send hundreds of kilobytes in such a field.
#[test]
fn nothing_is_read_before_its_writer_is_known_to_be_trusted() {
    let walk = |proxies: TrustedProxies, peer: &str, reported: &[&str]| {
        let mut reported = reported.iter().map(|address| address.parse().ok());
        let unread = || panic!("an address was read that nobody trusted has written");
        let reported = std::iter::from_fn(move || reported.next().or_else(unread));
        proxies.walk(peer.parse().ok(), reported).unwrap().to_string()
    };
    assert_eq!(walk(trusted(), "192.0.2.7", &[]), "192.0.2.7");
    assert_eq!(walk(trusted(), PROXY, &["203.0.113.9"]), "203.0.113.9");
    assert_eq!(walk(trusted(), PROXY, &["10.0.0.2", "203.0.113.9"]), "203.0.113.9");
    assert_eq!(walk(TrustedProxies::hops(0), PROXY, &[]), PROXY);
    assert_eq!(walk(TrustedProxies::hops(1), PROXY, &["203.0.113.9"]), "203.0.113.9");
}
