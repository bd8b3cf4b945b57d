//! What the upstream sees of a request, and the client of a response.

use crate::support::gateway::{Gateway, OPEN};
use crate::support::upstream::{HELLO, Upstream};
use crate::support::wire::Head;

/// What the upstream sees of a request with these lines, and the client of this response.
async fn exchange(args: &[&str], lines: &str, answer: &str) -> (Head, Head) {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, args);
    let mut client = gateway.connect().await;
    client.send(format!("GET /a HTTP/1.1\r\nhost: example.com\r\n{lines}\r\n")).await;
    let (mut wire, request) = upstream.request().await;
    wire.send(answer).await;
    (request, client.answer().await.0)
}

#[tokio::test]
async fn a_stranger_cannot_say_for_whom_it_asks() {
    let lines = "x-forwarded-for: 1.1.1.1\r\nX-Forwarded-Proto: https\r\nx-forwarded-host: admin\r\n\
                 forwarded: for=1.1.1.1\r\nx-real-ip: 1.1.1.1\r\nx_forwarded_for: 1.1.1.1\r\n";
    let (request, _) = exchange(&[], lines, HELLO).await;
    assert_eq!(request.field("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(request.field("x-forwarded-proto"), Some("http"));
    assert_eq!(request.field("x-forwarded-host"), Some("example.com"));
    assert_eq!(request.field("forwarded"), Some(r#"for=127.0.0.1;host="example.com";proto=http"#));
    assert_eq!((request.field("x-real-ip"), request.field("x_forwarded_for")), (None, None));
    assert_eq!(request.field("host"), Some("example.com"));
    assert_eq!(request.field("via"), Some("1.1 gateway"));
}

#[tokio::test]
async fn a_trusted_proxy_can() {
    let lines = "x-forwarded-for: 1.1.1.1\r\nx-forwarded-for: 10.0.0.1\r\nx-forwarded-proto: https\r\n\
                 forwarded: for=1.1.1.1;proto=https\r\n";
    let (request, _) = exchange(&["--trust-proxy", "127.0.0.0/8"], lines, HELLO).await;
    assert_eq!(request.field("x-forwarded-for"), Some("1.1.1.1, 10.0.0.1, 127.0.0.1"));
    assert_eq!(request.field("x-forwarded-proto"), Some("https"));
    assert_eq!(
        request.field("forwarded"),
        Some(r#"for=1.1.1.1;proto=https, for=127.0.0.1;host="example.com";proto=http"#)
    );
}

#[tokio::test]
async fn the_upstream_may_want_its_own_host() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &["--host", "upstream"]);
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: example.com\r\n\r\n").await;
    let (_, request) = upstream.request().await;
    assert_eq!(request.field("host"), Some(upstream.address().to_string().as_str()));
    assert_eq!(request.field("x-forwarded-host"), Some("example.com"));
}

#[tokio::test]
async fn what_is_between_neighbours_goes_no_further() {
    let lines = "connection: keep-alive, x-mine\r\nx-mine: 1\r\nkeep-alive: timeout=5\r\nproxy-authorization: Basic x\r\n\
                 te: gzip\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\nproxy: http://evil\r\nx-theirs: 2\r\n";
    let answer = "HTTP/1.1 200 OK\r\nconnection: keep-alive, x-yours\r\nx-yours: 1\r\nkeep-alive: timeout=5\r\n\
                  proxy-authenticate: Basic\r\nupgrade: h2c\r\nx-theirs: 2\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n\
                  content-length: 0\r\n\r\n";
    let (request, response) = exchange(&[], lines, answer).await;
    for gone in [
        "connection",
        "x-mine",
        "keep-alive",
        "proxy-authorization",
        "te",
        "upgrade",
        "http2-settings",
        "proxy",
    ] {
        assert_eq!(request.field(gone), None, "{gone}");
    }
    for gone in ["connection", "x-yours", "keep-alive", "proxy-authenticate", "upgrade"] {
        assert_eq!(response.field(gone), None, "{gone}");
    }
    assert_eq!((request.field("x-theirs"), response.field("x-theirs")), (Some("2"), Some("2")));
    assert_eq!(response.fields("set-cookie"), ["a=1", "b=2"]);
    assert_eq!(response.field("via"), Some("1.1 gateway"));
}

#[tokio::test]
async fn the_client_is_told_of_the_tighter_limit() {
    let answer = |remaining: u32| {
        format!(
            "HTTP/1.1 200 OK\r\nx-ratelimit-limit: 50\r\nx-ratelimit-remaining: {remaining}\r\n\
             x-ratelimit-reset: 1900000000\r\ncontent-length: 0\r\n\r\n"
        )
    };
    // The upstream's own fields, which leave less than the gateway's.
    let (_, response) = exchange(&[], "", &answer(3)).await;
    assert_eq!(response.field("x-ratelimit-remaining"), Some("3"));
    assert_eq!(response.field("x-ratelimit-limit"), Some("50"));
    assert_eq!(response.field("x-ratelimit-reset"), Some("1900000000"));
    // More is left, so the gateway's are kept.
    let (_, response) = exchange(&[], "", &answer(4_000_000)).await;
    assert_eq!(response.field("x-ratelimit-remaining"), Some("999999"));
    assert_eq!(response.field("x-ratelimit-limit"), Some("1000000"));
    assert_ne!(response.field("x-ratelimit-reset"), Some("1900000000"));
}

#[tokio::test]
async fn an_old_answer_is_a_new_one() {
    // HTTP/1.0, with a body until the connection is closed.
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &[]);
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let (mut wire, _) = upstream.request().await;
    wire.send("HTTP/1.0 200 OK\r\n\r\nold").await;
    drop(wire);
    let (head, body) = client.answer().await;
    assert_eq!((head.line(), body.as_str()), ("HTTP/1.1 200 OK", "old"));
    assert_eq!(head.field("via"), Some("1.0 gateway"));
}

#[tokio::test]
async fn an_old_client_is_told_the_end_by_the_end() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &[]);
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.0\r\n\r\n").await;
    let (mut wire, request) = upstream.request().await;
    assert_eq!(request.line(), "GET / HTTP/1.1");
    assert_eq!(request.field("host"), Some(upstream.address().to_string().as_str()));
    wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nnew\r\n0\r\n\r\n").await;
    let head = client.head().await;
    assert_eq!((head.field("transfer-encoding"), head.field("content-length")), (None, None));
    assert_eq!(client.rest().await, "new");
}
