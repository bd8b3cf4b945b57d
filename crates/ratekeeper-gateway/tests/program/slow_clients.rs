//! Clients that are slow, or too slow.

use bytes::Bytes;
use http::Request;
use http_body_util::Empty;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::support::gateway::{Gateway, OPEN};
use crate::support::upstream::{HELLO, Upstream, answering};
use crate::support::wire::soon;

#[tokio::test]
async fn a_head_that_does_not_come_is_not_waited_for() {
    let gateway = Gateway::start(OPEN, answering(HELLO).await, &["--header-timeout", "300ms"]);
    // Nothing; the possible start of HTTP/2; what may be either; part of a head; HTTP/2, and then nothing.
    for begun in [
        "",
        "PRI * HT",
        "P",
        "GET / HTTP/1.1\r\nhost: x\r\nx-slow: ",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
    ] {
        let mut client = gateway.connect().await;
        client.send(begun).await;
        while client.some().await > 0 {}
    }
    gateway.metric_becomes("gateway_connections_open", 0.0).await;
}

#[tokio::test]
async fn a_connection_on_which_nothing_more_is_asked_is_closed() {
    let gateway = Gateway::start(OPEN, answering(HELLO).await, &["--header-timeout", "300ms"]);
    let mut client = gateway.connect().await;
    for _ in 0..2 {
        client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert_eq!(client.answer().await.1, "hello\n");
    }
    assert_eq!(client.rest().await, "");
}

#[tokio::test]
async fn a_long_request_is_no_idle_connection() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &["--header-timeout", "100ms"]);
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let (mut wire, _) = upstream.request().await;
    // Long enough for an idle connection to be closed, as this one shows.
    let mut idle = gateway.connect().await;
    assert_eq!(idle.rest().await, "");
    let mut idle = gateway.connect().await;
    assert_eq!(idle.rest().await, "");
    wire.send(HELLO).await;
    assert_eq!(client.answer().await.1, "hello\n");
}

#[tokio::test]
async fn a_head_has_its_bounds() {
    let gateway = Gateway::start(OPEN, answering(HELLO).await, &[]);
    let mut client = gateway.connect().await;
    client.send(format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "a".repeat(60_000))).await;
    assert_eq!(client.head().await.status(), 200);
    let mut client = gateway.connect().await;
    // It may be refused before all of it is sent.
    let _ =
        client.try_send(format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}", "a".repeat(70_000)).as_bytes()).await;
    assert_eq!(client.head().await.status(), 431);
}

#[tokio::test]
async fn a_request_that_does_not_go_on_is_not_waited_for() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &["--idle-timeout", "300ms"]);
    let mut client = gateway.connect().await;
    client.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nabc").await;
    let (mut wire, _) = upstream.request().await;
    assert_eq!(wire.exactly(3).await, "abc");
    let (head, body) = client.answer().await;
    assert_eq!(head.status(), 408);
    assert!(body.contains(r#""error":"request_timeout""#), "{body}");
    // The upstream must not take this for the whole body.
    assert_eq!(wire.some().await, 0);
}

#[tokio::test]
async fn an_upstream_is_not_late_while_the_client_sends() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &["--response-timeout", "200ms"]);
    let mut client = gateway.connect().await;
    client.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 6\r\n\r\nabc").await;
    let (mut wire, _) = upstream.request().await;
    assert_eq!(wire.exactly(3).await, "abc");
    // Much longer than the upstream has.
    let other = Upstream::start().await;
    let late = Gateway::start(OPEN, &other, &["--response-timeout", "500ms"]);
    let (answer, _other) = tokio::join!(late.get("/"), other.request());
    assert_eq!(answer.0.status(), 504);
    client.send("def").await;
    assert_eq!(wire.exactly(3).await, "def");
    wire.send(HELLO).await;
    assert_eq!(client.answer().await.0.status(), 200);
}

#[tokio::test]
async fn a_client_that_does_not_read_is_not_waited_for() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &["--idle-timeout", "500ms"]);
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let (mut wire, _) = upstream.request().await;
    wire.send("HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\n").await;
    // Until the gateway gives up on it.
    let piece = vec![b'x'; 1 << 20];
    while wire.try_send(&piece).await.is_ok() {}
    gateway.metric_becomes("gateway_connections_open", 0.0).await;
}

#[tokio::test]
async fn nor_is_one_that_takes_nothing_of_it_by_http_2() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &["--idle-timeout", "500ms"]);
    let stream = TokioIo::new(TcpStream::connect(gateway.address).await.unwrap());
    let (mut client, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get("http://x/").body(Empty::<Bytes>::new()).unwrap();
    let (response, (mut wire, _)) = tokio::join!(
        async {
            let response = soon(client.send_request(request)).await.unwrap();
            assert_eq!(response.status(), 200);
            response
        },
        async {
            let (mut wire, head) = upstream.request().await;
            wire.send("HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\n").await;
            (wire, head)
        }
    );
    // The connection is alive and answers pings, but reads nothing of this.
    let piece = vec![b'x'; 1 << 20];
    while wire.try_send(&piece).await.is_ok() {}
    gateway.metric_becomes("gateway_connections_open", 0.0).await;
    drop(response);
}

#[tokio::test]
async fn those_who_are_too_many_wait_until_others_have_gone() {
    let gateway = Gateway::start(OPEN, answering(HELLO).await, &["--max-connections", "2"]);
    let mut first = gateway.connect().await;
    let mut second = gateway.connect().await;
    for client in [&mut first, &mut second] {
        client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert_eq!(client.answer().await.0.status(), 200);
    }
    let mut third = gateway.connect().await;
    third.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(gateway.metric("gateway_connections_open").await, 2.0);
    assert_eq!(gateway.metric(r#"gateway_requests_total{class="2xx"}"#).await, 2.0);
    drop(first);
    assert_eq!(third.answer().await.0.status(), 200);
}

#[tokio::test]
async fn when_no_more_files_can_be_opened_it_goes_on_later() {
    let gateway = Gateway::with_files(48, OPEN, answering(HELLO).await, &[]);
    let mut clients = Vec::new();
    for _ in 0..64 {
        clients.push(gateway.connect().await);
    }
    gateway.logs("cannot accept a connection").await;
    drop(clients);
    assert_eq!(gateway.get("/").await.1, "hello\n");
}
