//! `Forwarded` (RFC 7239).

use super::super::{TrustedProxies, client_ip};
use super::{from_peer, shown, with};
use crate::key::PeerAddr;

const PROXY: &str = "10.0.0.1";

/// The key of a request through the proxy with lines of `Forwarded`.
fn client(lines: &[&str]) -> String {
    let key = client_ip(TrustedProxies::networks(["10.0.0.0/8"]).unwrap().in_forwarded());
    let lines: Vec<_> = lines.iter().map(|line| ("forwarded", *line)).collect();
    shown(&key, &from_peer(PROXY, &lines))
}

#[test]
fn an_element_names_the_node_that_it_is_for() {
    for (line, is) in [
        ("for=203.0.113.9", "203.0.113.9"),
        ("For=203.0.113.9;Proto=https", "203.0.113.9"),
        ("proto=http;by=10.0.0.1;FOR=203.0.113.9;host=example.com", "203.0.113.9"),
        ("for=\"203.0.113.9:4711\"", "203.0.113.9"),
        ("for=203.0.113.9:4711", "203.0.113.9"),
        ("for=\"[2001:db8:cafe:17::17]:4711\"", "2001:db8:cafe:17::"),
        ("for=\"[2001:db8:cafe:17::17]\"", "2001:db8:cafe:17::"),
        ("for=\"[::ffff:203.0.113.9]\"", "203.0.113.9"),
        (r#"for="\203.0.\113.9""#, "203.0.113.9"),
        (r#"host="a,b;for=1.1.1.1";for=203.0.113.9"#, "203.0.113.9"),
        ("for=203.0.113.9;;proto=http; ", "203.0.113.9"),
        ("for=203.0.113.9 ; proto=http , for=10.0.0.2", "203.0.113.9"),
    ] {
        assert_eq!(client(&[line]), is, "{line}");
    }
}

#[test]
fn what_a_client_writes_before_the_proxy_does_not_count() {
    for forged in [
        "for=1.1.1.1",
        "for=10.0.0.9",
        "for=1.1.1.1, for=10.0.0.9",
        "for=unknown",
        "proto=http",
        "nonsense",
        "for",
        "for=1.1.1.1 nonsense",
        "for=1.1.1.1;x=y\"",
        "\u{ff}",
        "=1.1.1.1",
        ";",
        "",
    ] {
        assert_eq!(client(&[&format!("{forged}, for=203.0.113.9")]), "203.0.113.9", "{forged}");
        assert_eq!(client(&[&format!("{forged}, for=\"203.0.113.9:80\"")]), "203.0.113.9", "{forged}");
        assert_eq!(client(&[forged, "for=203.0.113.9"]), "203.0.113.9", "{forged}");
        assert_eq!(client(&[forged, "for=203.0.113.9", "for=10.0.0.2"]), "203.0.113.9", "{forged}");
    }
}

#[test]
fn a_node_that_is_no_address_stops_at_the_last_trusted_one() {
    for node in ["unknown", "_hidden", "_SEVKISEK", "\"_hidden:80\"", "\"\"", "203.0.113", "example.com"] {
        assert_eq!(client(&[&format!("for=1.1.1.1, for={node}, for=10.0.0.2")]), "10.0.0.2", "{node}");
        assert_eq!(client(&[&format!("for=1.1.1.1, for={node}")]), PROXY, "{node}");
    }
    // An element with no `for`, or with two, stops there as well.
    for element in ["proto=https", "", "for=203.0.113.8;for=203.0.113.9"] {
        assert_eq!(client(&[&format!("for=1.1.1.1, {element}")]), PROXY, "{element}");
    }
}

#[test]
fn a_port_may_be_hidden() {
    // RFC 7239, section 6: a port is a number, or an underscore and a name.
    assert_eq!(client(&["for=1.1.1.1, for=\"203.0.113.9:_hidden\""]), "203.0.113.9");
    assert_eq!(client(&["for=1.1.1.1, for=\"[2001:db8:1:2::9]:_h-1.x\""]), "2001:db8:1:2::");
    assert_eq!(client(&["for=1.1.1.1, for=\"203.0.113.9:_\""]), PROXY);
    assert_eq!(client(&["for=1.1.1.1, for=\"203.0.113.9:_a b\""]), PROXY);
}

/// Read from its end, the proxy's element has one reading, whatever precedes it.
#[test]
fn a_quote_that_is_not_closed_hides_nothing() {
    for forged in
        ["for=\"", "x=\"", "for=\"1.1.1.1", "\"", "for=1.1.1.1, x=\"\\", "for=\"1.1.1.1\\\"", "a=b\";c=\""]
    {
        for (appended, is) in [
            ("for=203.0.113.9", "203.0.113.9"),
            ("for=\"203.0.113.9\"", "203.0.113.9"),
            ("for=\"[2001:db8::9]\";by=\"[fd00::1]\"", "2001:db8::"),
            ("for=203.0.113.9;host=\",for=1.1.1.1;x=y\"", "203.0.113.9"),
            (r#"for=203.0.113.9;host="a\",for=1.1.1.1;x=\"b\\""#, "203.0.113.9"),
        ] {
            // The proxy appends to what the client sent, in the same line.
            assert_eq!(client(&[&format!("{forged}, {appended}")]), is, "{forged}, {appended}");
            assert_eq!(client(&[forged, appended]), is, "{forged}, {appended}");
        }
    }
}

#[test]
fn nothing_to_the_left_of_damage_counts() {
    for damage in [
        "for",
        "for=",
        "=10.0.0.2",
        "for =10.0.0.2",
        "for= 10.0.0.2",
        "for=10.0.0.2\"",
        "for=\"10.0.0.2",
        "for=10.0.0.2;x=y\"",
        "for=10.0.0.2;x=\"\\\"",
        "for=10.0.0.2;\"x\"",
        "for=10.0.0.2;x=\"y\"z",
        "for=10.0.0.2;x=\"y\"\"z\"",
        "for=10.0.0.2 proto=http",
        "for=10.0.0.2;x=@",
        "for=10.0.0.2;x=\u{e9}",
        "for=10.0.0.2;for=10.0.0.2",
        "for=(10.0.0.2)",
    ] {
        assert_eq!(client(&[&format!("for=1.1.1.1, {damage}")]), PROXY, "{damage}");
        assert_eq!(client(&[&format!("for=1.1.1.1, {damage}, for=10.0.0.3")]), "10.0.0.3", "{damage}");
        assert_eq!(client(&["for=1.1.1.1", damage, "for=10.0.0.3"]), "10.0.0.3", "{damage}");
    }
}

#[test]
fn a_malformed_line_stops_at_the_last_trusted_address() {
    for line in
        ["for", "for=", "=203.0.113.9", "for =203.0.113.9", "for=\"203.0.113.9\"x", "203.0.113.9", ";", ","]
    {
        assert_eq!(client(&["for=1.1.1.1", line]), PROXY, "{line}");
    }
    let mut request = with(&[("forwarded", b"for=1.1.1.1"), ("forwarded", b"for=203.0.113.9;x=\xff")]);
    request.extensions_mut().insert(PeerAddr("10.0.0.1:1".parse().unwrap()));
    let key = client_ip(TrustedProxies::hops(2).in_forwarded());
    assert_eq!(shown(&key, &request), PROXY);
}
