//! Heads, before and after.

use http::{Request, Response};

use super::*;

const PEER: &str = "192.0.2.7";

fn forwarding() -> Forwarding {
    Forwarding {
        upstream: "http://upstream:9000".parse().unwrap(),
        host: Host::Pass,
        trusted: vec!["10.0.0.0/8".parse().unwrap()],
        plain_paths: false,
    }
}

fn head(fields: &[(&str, &str)]) -> request::Parts {
    let builder = Request::get("/a").header("host", "example.com");
    let builder = fields.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value));
    builder.body(()).unwrap().into_parts().0
}

/// What is forwarded of a request with these fields from this peer.
fn from(peer: &str, fields: &[(&str, &str)]) -> HeaderMap {
    let mut head = head(fields);
    forwarding().request(&mut head, peer.parse().unwrap()).unwrap();
    head.headers
}

#[track_caller]
fn has(headers: &HeaderMap, name: &str, lines: &[&str]) {
    assert_eq!(headers.get_all(name).iter().collect::<Vec<_>>(), lines, "{name} in {headers:?}");
}

#[test]
fn a_stranger_cannot_say_for_whom_it_asks() {
    let headers = from(
        PEER,
        &[
            ("x-forwarded-for", "1.1.1.1"),
            ("x-forwarded-for", "2.2.2.2"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "admin.internal"),
            ("x-forwarded-port", "443"),
            ("x_forwarded_for", "3.3.3.3"),
            ("forwarded", "for=1.1.1.1"),
            ("x-real-ip", "1.1.1.1"),
            ("cf-connecting-ip", "1.1.1.1"),
            ("x-forwarded", "1.1.1.1"),
            ("client_ip", "1.1.1.1"),
            ("x-original-url", "/admin"),
            ("trailer", "x-sum, X-Forwarded-For"),
        ],
    );
    has(&headers, "x-forwarded-for", &[PEER]);
    has(&headers, "x-forwarded-proto", &["http"]);
    has(&headers, "x-forwarded-host", &["example.com"]);
    has(&headers, "forwarded", &[r#"for=192.0.2.7;host="example.com";proto=http"#]);
    for gone in ["x-forwarded-port", "x_forwarded_for", "x-real-ip", "cf-connecting-ip"] {
        has(&headers, gone, &[]);
    }
    for gone in ["x-forwarded", "client_ip", "x-original-url", "trailer"] {
        has(&headers, gone, &[]);
    }
    has(&from(PEER, &[("trailer", "x-sum")]), "trailer", &["x-sum"]);
}

/// What is counted is then all that the upstream sees.
#[test]
fn a_name_that_may_be_taken_for_another_goes_no_further() {
    for peer in [PEER, "10.0.0.1"] {
        let fields = [("x_api_key", "mallory"), ("x-api_key", "mallory"), ("_", "1"), ("x-api-key", "alice")];
        let headers = from(peer, &fields);
        for gone in ["x_api_key", "x-api_key", "_"] {
            has(&headers, gone, &[]);
        }
        has(&headers, "x-api-key", &["alice"]);
        has(&from(peer, &[("trailer", "x-sum, X_Api_Key")]), "trailer", &[]);
    }
}

#[test]
fn a_body_that_is_coded_for_the_way_goes_no_further() {
    for (lines, is_good) in [
        (&["chunked"][..], true),
        (&["Chunked, "], true),
        (&["gzip, chunked"], false),
        (&["gzip", "chunked"], false),
        (&["chunked, chunked"], false),
        (&["identity"], false),
    ] {
        let fields: Vec<_> = lines.iter().map(|line| ("transfer-encoding", *line)).collect();
        let told = forwarding().request(&mut head(&fields), PEER.parse().unwrap());
        let expected = if is_good { Ok(None) } else { Err(BadRequest::Coding) };
        assert_eq!(told, expected, "{lines:?}");
    }
}

#[test]
fn a_trusted_proxy_is_believed_and_added() {
    let headers = from(
        "::ffff:10.0.0.1",
        &[
            ("x-forwarded-for", "1.1.1.1"),
            ("x-forwarded-for", "2.2.2.2"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "shop.example"),
            ("x-forwarded-port", "443"),
            ("x_forwarded_for", "3.3.3.3"),
            ("forwarded", r#"for="[::1]:1234";proto=https"#),
            ("x-real-ip", "1.1.1.1"),
        ],
    );
    has(&headers, "x-forwarded-for", &["1.1.1.1, 2.2.2.2, 10.0.0.1"]);
    has(&headers, "x-forwarded-proto", &["https"]);
    has(&headers, "x-forwarded-host", &["shop.example"]);
    has(&headers, "x-forwarded-port", &["443"]);
    has(&headers, "x_forwarded_for", &[]);
    has(
        &headers,
        "forwarded",
        &[r#"for="[::1]:1234";proto=https, for=10.0.0.1;host="example.com";proto=http"#],
    );
    has(&headers, "x-real-ip", &["1.1.1.1"]);
}

/// What a client wrote must not swallow what the proxies after it wrote, nor take it along.
#[test]
fn of_a_malformed_field_only_what_follows_the_damage_is_forwarded() {
    const OWN: &str = r#"for=10.0.0.1;host="example.com";proto=http"#;
    for (written, kept) in [
        (r#"for="1.1.1.1"#, ""),
        (r#"for="\"1.1.1.1""#, r#"for="\"1.1.1.1", "#),
        (r#"for=", for=203.0.113.9"#, "for=203.0.113.9, "),
        (r#"a=b";c=""#, ""),
        (r#"a=b";c=", for="[2001:db8::1]""#, r#"for="[2001:db8::1]", "#),
        (r#"for=", for=203.0.113.9;host=",for=9.9.9.1;x=y""#, r#"for=203.0.113.9;host=",for=9.9.9.1;x=y", "#),
    ] {
        let headers = from("10.0.0.1", &[("forwarded", written)]);
        has(&headers, "forwarded", &[&format!("{kept}{OWN}")]);
        // Nor is a line before it.
        let headers = from("10.0.0.1", &[("forwarded", "for=1.1.1.1"), ("forwarded", written)]);
        let first = if kept.trim_end_matches(", ") == written { "for=1.1.1.1, " } else { "" };
        has(&headers, "forwarded", &[&format!("{first}{kept}{OWN}")]);
    }
}

#[test]
fn an_ipv6_peer_is_quoted_where_it_has_to_be() {
    let headers = from("2001:db8::1", &[]);
    has(&headers, "x-forwarded-for", &["2001:db8::1"]);
    has(&headers, "forwarded", &[r#"for="[2001:db8::1]";host="example.com";proto=http"#]);
}

#[test]
fn what_is_between_neighbours_goes_no_further() {
    let headers = from(
        PEER,
        &[
            ("connection", "close, X-Mine"),
            ("connection", "x-forwarded-for, host,,@"),
            ("x-mine", "1"),
            ("keep-alive", "timeout=5"),
            ("proxy-authorization", "Basic eDp5"),
            ("proxy-connection", "keep-alive"),
            ("proxy", "http://evil.example"),
            ("te", "gzip"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("x-theirs", "2"),
        ],
    );
    for gone in [
        "connection",
        "x-mine",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "proxy",
        "te",
        "transfer-encoding",
        "upgrade",
    ] {
        has(&headers, gone, &[]);
    }
    has(&headers, "x-theirs", &["2"]);
    // Named by the client, and written nevertheless.
    has(&headers, "x-forwarded-for", &[PEER]);
    has(&headers, "host", &["example.com"]);
}

#[test]
fn trailers_are_taken_by_who_takes_them() {
    let headers = from(PEER, &[("te", "deflate;q=0.5, Trailers"), ("connection", "te")]);
    has(&headers, "te", &["trailers"]);
    has(&headers, "connection", &["te"]);
}

#[test]
fn an_upgrade_is_offered_unless_it_is_another_http() {
    let offer = |upgrade: &str, connection: &str| {
        let mut head =
            head(&[("upgrade", upgrade), ("connection", connection), ("http2-settings", "AAMAAABk")]);
        let offer = forwarding().request(&mut head, PEER.parse().unwrap()).unwrap();
        assert_eq!(offer.is_some(), head.headers.contains_key("upgrade"));
        assert_eq!(offer.is_some(), head.headers.get("connection").is_some_and(|value| value == "upgrade"));
        assert!(!head.headers.contains_key("http2-settings"));
        offer.map(|offer| offer.as_str().to_owned())
    };
    assert_eq!(offer("WebSocket", "keep-alive, Upgrade").as_deref(), Some("WebSocket"));
    assert_eq!(offer("h2c, websocket", "upgrade").as_deref(), Some("websocket"));
    for (upgrade, connection) in
        [("h2c", "upgrade, http2-settings"), ("H2C", "upgrade"), ("HTTP/3.0", "upgrade")]
    {
        assert_eq!(offer(upgrade, connection), None, "{upgrade}");
    }
    assert_eq!(offer("websocket", "keep-alive"), None);
}

#[test]
fn only_what_was_offered_is_accepted() {
    let mut head = head(&[("upgrade", "websocket, chat"), ("connection", "upgrade")]);
    let offer = forwarding().request(&mut head, PEER.parse().unwrap()).unwrap().unwrap();
    let accepted = |protocol: &str| {
        let response = Response::builder().status(101).header("upgrade", protocol).body(()).unwrap();
        offer.accepted(&response.into_parts().0).map(|offer| offer.as_str().to_owned())
    };
    assert_eq!(accepted("WebSocket").as_deref(), Some("WebSocket"));
    assert_eq!(accepted("chat").as_deref(), Some("chat"));
    for other in ["h2c", "", "websocket, chat"] {
        assert_eq!(accepted(other), None, "{other}");
    }
}

#[test]
fn the_upstream_sees_the_clients_host_or_its_own() {
    let mut own = forwarding();
    own.host = Host::Upstream;
    let mut head = head(&[]);
    own.request(&mut head, PEER.parse().unwrap()).unwrap();
    has(&head.headers, "host", &["upstream:9000"]);
    // What the client asked for is still known.
    has(&head.headers, "x-forwarded-host", &["example.com"]);
    assert_eq!(head.uri, "http://upstream:9000/a");
}

#[test]
fn the_target_says_the_host_before_the_field_does() {
    let request = Request::get("http://target.example:8080/a?b").header("host", "field.example");
    let mut head = request.body(()).unwrap().into_parts().0;
    forwarding().request(&mut head, PEER.parse().unwrap()).unwrap();
    has(&head.headers, "host", &["target.example:8080"]);
    assert_eq!(head.uri, "http://upstream:9000/a?b");

    // HTTP/2 has no such field at all.
    let request = Request::get("http://target.example/a").version(Version::HTTP_2);
    let mut head = request.body(()).unwrap().into_parts().0;
    forwarding().request(&mut head, PEER.parse().unwrap()).unwrap();
    has(&head.headers, "host", &["target.example"]);
    has(&head.headers, "via", &["2 gateway"]);
    assert_eq!(head.version, Version::HTTP_11);
}

#[test]
fn a_request_has_one_host() {
    let refused = |request: http::request::Builder| {
        let mut head = request.body(()).unwrap().into_parts().0;
        forwarding().request(&mut head, PEER.parse().unwrap()).unwrap_err()
    };
    assert_eq!(refused(Request::get("/")), BadRequest::Host);
    assert_eq!(refused(Request::get("/").header("host", "a").header("host", "b")), BadRequest::Host);
    for host in ["a b", "a/b", "user@a", "a\"b", "[::1", ":80"] {
        assert_eq!(refused(Request::get("/").header("host", host)), BadRequest::Host, "{host}");
    }
    assert_eq!(refused(Request::get("http://user@a/").header("host", "a")), BadRequest::Host);
    assert_eq!(
        refused(Request::builder().method("CONNECT").uri("a:80").header("host", "a")),
        BadRequest::Connect
    );
    assert_eq!(refused(Request::get("a:80").header("host", "a")), BadRequest::Target);

    // HTTP/1.0 does not require one.
    let request = Request::get("/").version(Version::HTTP_10);
    let mut head = request.body(()).unwrap().into_parts().0;
    forwarding().request(&mut head, PEER.parse().unwrap()).unwrap();
    has(&head.headers, "host", &["upstream:9000"]);
    has(&head.headers, "x-forwarded-host", &[]);
    has(&head.headers, "via", &["1.0 gateway"]);
}

#[test]
fn a_path_that_can_be_read_in_two_ways_is_refused_if_that_is_wanted() {
    for (plain_paths, refused) in [(false, Ok(None)), (true, Err(BadRequest::Path))] {
        let forwarding = Forwarding { plain_paths, ..forwarding() };
        let mut head = head(&[]);
        head.uri = "//login?a".parse().unwrap();
        assert_eq!(forwarding.request(&mut head, PEER.parse().unwrap()), refused);
        let mut head = Request::get("/login?a=//b").header("host", "a").body(()).unwrap().into_parts().0;
        assert_eq!(forwarding.request(&mut head, PEER.parse().unwrap()), Ok(None));
    }
}

#[test]
fn split_cookies_are_joined() {
    has(&from(PEER, &[("cookie", "a=1"), ("cookie", "b=2")]), "cookie", &["a=1; b=2"]);
    has(&from(PEER, &[("cookie", "a=1; b=2")]), "cookie", &["a=1; b=2"]);
}

#[test]
fn other_proxies_stay_in_via() {
    has(&from(PEER, &[("via", "1.1 cdn")]), "via", &["1.1 cdn", "1.1 gateway"]);
}

#[test]
fn a_response_loses_what_was_for_the_gateway() {
    let response = Response::builder()
        .version(Version::HTTP_10)
        .header("connection", "close, x-mine")
        .header("x-mine", "1")
        .header("keep-alive", "timeout=5")
        .header("proxy-authenticate", "Basic")
        .header("transfer-encoding", "chunked")
        .header("trailer", "grpc-status")
        .header("x-ratelimit-limit", "7");
    let mut head = response.body(()).unwrap().into_parts().0;
    forwarding().response(&mut head, None);
    for gone in ["connection", "x-mine", "keep-alive", "proxy-authenticate", "transfer-encoding"] {
        has(&head.headers, gone, &[]);
    }
    has(&head.headers, "trailer", &["grpc-status"]);
    has(&head.headers, "x-ratelimit-limit", &["7"]);
    has(&head.headers, "via", &["1.0 gateway"]);
}
