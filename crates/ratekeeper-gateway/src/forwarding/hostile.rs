//! Arbitrary heads.

use http::{HeaderName, Request};
use proptest::prelude::*;
use ratekeeper::RequestHead;
use ratekeeper::key::{self, KeyExtractor, PeerAddr, TrustedProxies};

use super::*;

/// Names with a meaning here.
const KNOWN: &[&str] = &[
    "connection",
    "te",
    "transfer-encoding",
    "upgrade",
    "keep-alive",
    "proxy-connection",
    "host",
    "via",
    "cookie",
    "x-forwarded-for",
    "x-forwarded-host",
    "x_forwarded_for",
    "x-forwarded_for",
    "x-forwarded-evil",
    "forwarded",
    "x-real-ip",
    "x_real_ip",
    "cf-connecting-ip",
    "content-length",
    "expect",
    "trailer",
];

/// Those, some that look like them, and any other.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![4 => prop::sample::select(KNOWN).prop_map(str::to_owned), 1 => "[a-z_-]{1,12}"]
}

/// Lists of such names, quoted values, or any bytes.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let list = prop::collection::vec(name(), 0..4).prop_map(|names| names.join(" ,").into_bytes());
    let text = "[ -~]{0,20}".prop_map(String::into_bytes);
    let bytes = prop::collection::vec(prop_oneof![0x20..0x7f_u8, 0x80..=0xff_u8], 0..20);
    prop_oneof![list, text, bytes, Just(b"for=\"".to_vec()), Just(b"websocket, h2c".to_vec())]
}

proptest! {
    #[test]
    fn whatever_comes_nobody_speaks_for_the_gateway(
        fields in prop::collection::vec((name(), value()), 0..12),
        version in prop::sample::select(&[Version::HTTP_10, Version::HTTP_11, Version::HTTP_2][..]),
        trusted in any::<bool>(),
    ) {
        let forwarding = Forwarding {
            upstream: "http://upstream:9000".parse().unwrap(),
            host: Host::Pass,
            trusted: if trusted { vec!["192.0.2.0/24".parse().unwrap()] } else { Vec::new() },
            plain_paths: false,
        };
        let mut head = Request::get("/a").version(version).body(()).unwrap().into_parts().0;
        for (name, value) in fields {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            head.headers.append(name, HeaderValue::from_bytes(&value).unwrap());
        }
        let Ok(offer) = forwarding.request(&mut head, "192.0.2.7".parse().unwrap()) else { return Ok(()) };

        // One line each, which ends with the gateway's own entry.
        let last = |name: &str, ending: &str| {
            let lines: Vec<_> = head.headers.get_all(name).iter().collect();
            lines.len() == 1 && lines[0].as_bytes().ends_with(ending.as_bytes())
        };
        prop_assert!(last("x-forwarded-for", "192.0.2.7"));
        prop_assert!(last("forwarded", ";proto=http"));
        prop_assert_eq!(head.headers.get_all("host").iter().count(), 1);
        prop_assert!(!trusted || head.headers.contains_key("x-forwarded-proto"));
        if !trusted {
            prop_assert_eq!(&head.headers["x-forwarded-for"], "192.0.2.7");
            prop_assert!(!head.headers.contains_key("x-real-ip") && !head.headers.contains_key("x-forwarded-evil"));
        }
        for name in head.headers.keys() {
            prop_assert!(!name.as_str().contains('_'), "{}", name);
        }
        // Fields about the connection are the gateway's own.
        prop_assert_eq!(head.headers.contains_key("upgrade"), offer.is_some());
        for line in head.headers.get_all("connection") {
            prop_assert!(line == "te" || line == "upgrade", "{:?}", line);
        }
        for gone in ["transfer-encoding", "keep-alive", "proxy-connection"] {
            prop_assert!(!head.headers.contains_key(gone), "{}", gone);
        }
        prop_assert!(head.headers.get_all("cookie").iter().count() <= 1);
        prop_assert_eq!(head.version, Version::HTTP_11);
    }
}

/// Pieces of what a client can write, to be joined.
fn written() -> impl Strategy<Value = String> {
    let pieces = &[
        "\"",
        "\\",
        ", ",
        ";",
        "=",
        "for=",
        "x=\"",
        "9.9.9.1",
        "for=9.9.9.1",
        ",for=9.9.9.1;x=y",
        "a=b\";c=\"",
    ];
    prop::collection::vec(prop::sample::select(&pieces[..]), 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    /// The library behind the gateway reads the field as the gateway does.
    #[test]
    fn a_client_behind_two_proxies_is_counted_as_itself(
        lines in prop::collection::vec(written(), 0..3),
        host in "[a-z,;=.:0-9]{1,12}|,for=9\\.9\\.9\\.1;x=y|a,for=9\\.9\\.9\\.1",
    ) {
        let forwarding = Forwarding {
            upstream: "http://upstream:9000".parse().unwrap(),
            host: Host::Pass,
            trusted: vec!["192.0.2.0/24".parse().unwrap()],
            plain_paths: false,
        };
        let mut head = Request::get("/").header("host", &host).body(()).unwrap().into_parts().0;
        let (last, before) = lines.split_last().map_or(("", &[][..]), |(last, before)| (last, before));
        for line in before.iter().cloned().chain([format!("{last}, for=203.0.113.9;host=\"{host}\"")]) {
            head.headers.append("forwarded", HeaderValue::from_str(&line).unwrap());
        }
        if forwarding.request(&mut head, "192.0.2.7".parse().unwrap()).is_err() {
            return Ok(());
        }
        head.extensions.insert(PeerAddr("10.0.0.1:1".parse().unwrap()));
        let proxies = TrustedProxies::networks(["10.0.0.1", "192.0.2.0/24"]).unwrap().in_forwarded();
        let client = key::client_ip(proxies).extract(&RequestHead::from(&head));
        prop_assert_eq!(format!("{client:?}"), "Key(Key(203.0.113.9))", "{:?}", head.headers);
    }
}
