//! `Forwarded` through proxies that append to what a client sent.

use std::net::IpAddr;

use http::{HeaderValue, Request};
use proptest::prelude::*;
use ratekeeper::key::{self, Extracted, KeyExtractor, PeerAddr, TrustedProxies};
use ratekeeper::{Key, RequestHead};

const PROXY: &str = "10.0.0.1";
const OTHER_PROXY: &str = "10.0.0.2";
const CLIENTS: [&str; 2] = ["203.0.113.9", "2001:db8:1:2::9"];

/// How a proxy writes its element.
#[derive(Clone, Copy, Debug)]
enum Style {
    Plain,
    /// With the host as it came. The proxy refuses a host with quotes or backslashes.
    HostLast,
    HostFirst,
    /// With the host in quotes, escaped.
    Escaped,
    OwnLine,
}

const STYLES: [Style; 5] = [Style::Plain, Style::HostLast, Style::HostFirst, Style::Escaped, Style::OwnLine];

/// The lines after a proxy has forwarded a request from this peer.
fn forward(mut lines: Vec<Vec<u8>>, style: Style, peer: &str, host: &str) -> Vec<Vec<u8>> {
    let node = match peer.parse().unwrap() {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("\"[{v6}]:4711\""),
    };
    let verbatim = host.replace(['"', '\\'], "");
    let escaped = host.replace('\\', "\\\\").replace('"', "\\\"");
    let element = match style {
        Style::Plain | Style::OwnLine => format!("for={node};proto=https"),
        Style::HostLast => format!("for={node};host=\"{verbatim}\""),
        Style::HostFirst => format!("host=\"{verbatim}\";for={node};by=\"[fd00::1]\""),
        Style::Escaped => format!("For={node};Host=\"{escaped}\";proto=http"),
    };
    match lines.pop() {
        Some(line) if !matches!(style, Style::OwnLine) => {
            lines.push([&line, &b", "[..], element.as_bytes()].concat());
        }
        line => lines.extend(line.into_iter().chain([element.into_bytes()])),
    }
    lines
}

/// The key of a request with these lines from the proxy.
fn client(lines: &[Vec<u8>], proxies: TrustedProxies) -> Key {
    let mut request = Request::new(());
    for line in lines {
        request.headers_mut().append("forwarded", HeaderValue::from_bytes(line).unwrap());
    }
    request.extensions_mut().insert(PeerAddr((PROXY.parse::<IpAddr>().unwrap(), 1).into()));
    match key::client_ip(proxies.in_forwarded()).extract(&RequestHead::from(&request)) {
        Extracted::Key(key) => key,
        other => panic!("{other:?}"),
    }
}

/// Pieces of what a client can write, to be joined.
fn text(pieces: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(pieces), 0..9).prop_map(|pieces| pieces.concat())
}

fn written() -> impl Strategy<Value = Vec<u8>> {
    let pieces = text(&[
        "\"",
        "\\",
        ",",
        ", ",
        ";",
        "=",
        "for=",
        "for=\"",
        "9.9.9.1",
        "10.0.0.7",
        "x",
        "x=\"",
        "host=\"",
        " ",
        "\t",
        "[",
        "for=9.9.9.1",
        ",for=9.9.9.1;x=y",
        "\";",
        "\\\"",
    ]);
    let bytes = prop::collection::vec(prop_oneof![0x20..0x7f_u8, 0x80..=0xff_u8], 0..12);
    prop_oneof![4 => pieces.prop_map(String::into_bytes), 1 => bytes]
}

fn host() -> impl Strategy<Value = String> {
    text(&[
        ",",
        ";",
        "=",
        "for=9.9.9.1",
        ",for=9.9.9.1;x=y",
        "x=",
        "a.example",
        "\"",
        "\\",
        "\",for=9.9.9.1;x=\"",
        " ",
    ])
}

/// Whether a line is well-formed when it is read from its start, by the grammar of RFC 7239 with the lenience
/// that the library documents.
fn is_well_formed(line: &[u8]) -> bool {
    read(line).is_some()
}

fn read(line: &[u8]) -> Option<()> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let (mut at, mut is_separated, mut has_for) = (0, true, false);
    loop {
        while matches!(line.get(at), Some(b' ' | b'\t')) {
            at += 1;
        }
        match line.get(at) {
            None => return Some(()),
            Some(b',') => (at, is_separated, has_for) = (at + 1, true, false),
            Some(b';') => (at, is_separated) = (at + 1, true),
            Some(_) if !is_separated => return None,
            Some(_) => {
                let name = at;
                at += line[at..].iter().take_while(|byte| is_token(**byte)).count();
                let is_for = line[name..at].eq_ignore_ascii_case(b"for");
                if at == name || line.get(at) != Some(&b'=') || (is_for && has_for) {
                    return None;
                }
                (at, has_for) = (at + 1, has_for || is_for);
                let value = at;
                if line.get(at) == Some(&b'"') {
                    at += 1;
                    while *line.get(at)? != b'"' {
                        at += if line[at] == b'\\' { 2 } else { 1 };
                    }
                    at += 1;
                } else {
                    let is_value = |byte: u8| is_token(byte) || b":[]".contains(&byte);
                    at += line[at..].iter().take_while(|byte| is_value(**byte)).count();
                }
                if at == value {
                    return None;
                }
                is_separated = false;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// What is left has no damage in it, and is all of the line if the line has none.
    #[test]
    fn what_is_intact_from_the_end_is_well_formed_from_the_start(line in written()) {
        let intact = key::intact_forwarded(&line);
        prop_assert!(line.ends_with(intact));
        prop_assert!(is_well_formed(intact), "{:?} of {:?}", intact.escape_ascii(), line.escape_ascii());
        prop_assert_eq!(is_well_formed(&line), intact == line, "{:?}", line.escape_ascii());
    }

    #[test]
    fn what_a_proxy_appends_is_intact_whatever_it_is_appended_to(
        line in written(),
        host in host(),
        style in prop::sample::select(&STYLES[..4]),
    ) {
        let own = forward(Vec::new(), style, "203.0.113.9", &host).remove(0);
        let lines = forward(vec![line], style, "203.0.113.9", &host);
        prop_assert!(key::intact_forwarded(&lines[0]).ends_with(&own), "{:?}", lines[0].escape_ascii());
    }

    #[test]
    fn a_client_is_counted_as_itself_whatever_it_writes(
        lines in prop::collection::vec(written(), 0..3),
        host in host(),
        peer in prop::sample::select(&CLIENTS[..]),
        style in prop::sample::select(&STYLES[..]),
        second in prop::option::of(prop::sample::select(&STYLES[..])),
    ) {
        let mut lines = forward(lines, style, peer, &host);
        if let Some(second) = second {
            lines = forward(lines, second, OTHER_PROXY, &host);
        }
        let expected = key::peer_ip().key(peer.parse().unwrap());
        let networks = TrustedProxies::networks(["10.0.0.1", "10.0.0.2"]).unwrap();
        prop_assert_eq!(client(&lines, networks), expected, "{:?}", &lines);
        let hops = TrustedProxies::hops(if second.is_some() { 2 } else { 1 });
        prop_assert_eq!(client(&lines, hops), expected, "{:?}", &lines);
    }
}

/// A client that opens a quote before the proxy's element, and closes it with the host within that element.
#[test]
fn a_host_that_looks_like_an_element_is_not_one() {
    for style in STYLES {
        for written in ["for=\"", "for=\"x", "x=\"", "for=1.1.1.1;x=\"", "\""] {
            let lines = forward(vec![written.into()], style, "203.0.113.9", ",for=9.9.9.1;x=y");
            let networks = TrustedProxies::networks([PROXY]).unwrap();
            assert_eq!(client(&lines, networks).to_string(), "203.0.113.9", "{style:?} after {written}");
        }
    }
}
