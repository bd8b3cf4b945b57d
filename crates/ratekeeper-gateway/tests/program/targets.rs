//! The targets of requests, and which are refused.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::support::gateway::{Gateway, OPEN};
use crate::support::upstream::{HELLO, Upstream, answering};
use crate::support::wire::soon;

#[tokio::test]
async fn a_path_is_passed_on_byte_for_byte() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &[]);
    let (mut client, mut wire) = (gateway.connect().await, None);
    for (method, target, seen) in [
        ("GET", "/", "/"),
        ("GET", "//", "//"),
        ("GET", "//evil.example/a", "//evil.example/a"),
        ("GET", "/a//b/./c/../d", "/a//b/./c/../d"),
        ("GET", "/%2F%2f%00%zz", "/%2F%2f%00%zz"),
        ("GET", "/a?", "/a?"),
        ("GET", "/?a=b?c=//d&&", "/?a=b?c=//d&&"),
        ("GET", "/{a}|\"^\\", "/{a}|\"^\\"),
        ("GET", "http://example.com/a?b", "/a?b"),
        ("GET", "http://example.com", "/"),
        ("OPTIONS", "*", "*"),
        ("PROPFIND", "/dav", "/dav"),
    ] {
        client.send(format!("{method} {target} HTTP/1.1\r\nhost: example.com\r\n\r\n")).await;
        let head = match &mut wire {
            None => {
                let (accepted, head) = upstream.request().await;
                wire = Some(accepted);
                head
            }
            // The same connection is reused.
            Some(wire) => wire.head().await,
        };
        assert_eq!(head.line(), format!("{method} {seen} HTTP/1.1"));
        assert_eq!(head.field("host"), Some("example.com"));
        wire.as_mut().unwrap().send(HELLO).await;
        assert_eq!(client.answer().await.1, "hello\n", "{target}");
    }
}

#[tokio::test]
async fn the_target_says_the_host_before_the_field_does() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &[]);
    let mut client = gateway.connect().await;
    client.send("GET http://target.example:81/ HTTP/1.1\r\nhost: field.example\r\n\r\n").await;
    assert_eq!(upstream.request().await.1.field("host"), Some("target.example:81"));
}

#[tokio::test]
async fn http_2_is_heard_and_becomes_http_1() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &[]);
    let stream = TokioIo::new(TcpStream::connect(gateway.address).await.unwrap());
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get("http://target.example/a?b")
        .header("cookie", "a=1")
        .header("cookie", "b=2")
        .header("te", "trailers")
        .body(Empty::<Bytes>::new())
        .unwrap();
    let serve = async {
        let (mut wire, head) = upstream.request().await;
        wire.send("HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n").await;
        wire.send("5\r\nhello\r\n0\r\ngrpc-status: 0\r\n\r\n").await;
        head
    };
    let (response, head) = tokio::join!(soon(client.send_request(request)), serve);
    assert_eq!(head.line(), "GET /a?b HTTP/1.1");
    assert_eq!((head.field("host"), head.field("cookie")), (Some("target.example"), Some("a=1; b=2")));
    assert_eq!((head.field("te"), head.field("connection")), (Some("trailers"), Some("te")));
    assert_eq!(head.field("via"), Some("2 gateway"));
    let body = soon(response.unwrap().into_body().collect()).await.unwrap();
    assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
    assert_eq!(body.to_bytes(), "hello");
}

#[tokio::test]
async fn what_makes_no_sense_goes_no_further() {
    let gateway = Gateway::start(OPEN, answering(HELLO).await, &[]);
    for (request, status) in [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nhost: a/b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nhost: user@a\r\n\r\n", 400),
        ("GET http://user@a/ HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        ("GET a HTTP/1.1\r\nhost: a\r\n\r\n", 400),
        ("CONNECT a:80 HTTP/1.1\r\nhost: a:80\r\n\r\n", 501),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1, 1\r\n\r\na", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: +1\r\n\r\na", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: identity\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, gzip\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding : chunked\r\n\r\n0\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nhost: a\r\nx: a\r\n folded\r\n\r\n", 400),
        ("POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nhost: a\r\nx: a\0b\r\n\r\n", 400),
        ("nonsense\r\n\r\n", 400),
    ] {
        let mut client = gateway.connect().await;
        client.send(request).await;
        assert_eq!(client.head().await.status(), status, "{request}");
    }
    assert_eq!(gateway.metric(r#"gateway_upstream_responses_total{class="2xx"}"#).await, 0.0);
    assert_eq!(gateway.get("/").await.0.status(), 200);
}

#[tokio::test]
async fn paths_that_lead_past_a_rule_are_refused_if_that_is_wanted() {
    let rules = "[[rules]]\nname = \"login\"\nmatch = \"/login\"\nquota = \"1/day\"\n";
    let gateway = Gateway::start(rules, answering(HELLO).await, &["--plain-paths"]);
    assert_eq!(gateway.get("/login?a=//b").await.0.status(), 200);
    assert_eq!(gateway.get("/login").await.0.status(), 429);
    // The layer decodes this one.
    assert_eq!(gateway.get("/%6Cogin").await.0.status(), 429);
    for path in ["//login", "/./login", "/a/../login", "/login;a=b", "/a%2F..%2Flogin", "/%6Fther"] {
        let (head, body) = gateway.get(path).await;
        assert_eq!(head.status(), 400, "{path}");
        assert!(body.contains("more than one way"), "{body}");
    }
    assert_eq!(gateway.get("/other").await.0.status(), 200);
}

#[tokio::test]
async fn no_request_hides_in_another() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &[]);
    let mut client = gateway.connect().await;
    // By its length, the second request would be part of the first.
    let hidden = "0\r\n\r\nGET /hidden HTTP/1.1\r\nhost: a\r\n\r\n";
    let length = hidden.len();
    let head = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n";
    client.send(format!("{head}content-length: {length}\r\n\r\n{hidden}")).await;
    let (mut wire, head) = upstream.request().await;
    assert_eq!((head.field("transfer-encoding"), head.field("content-length")), (Some("chunked"), None));
    assert_eq!(wire.chunks().await.0, "");
    wire.send(HELLO).await;
    assert_eq!(client.answer().await.1, "hello\n");
    // What follows it is not read as a request, since the connection cannot be trusted.
    assert_eq!(client.rest().await, "");
}
