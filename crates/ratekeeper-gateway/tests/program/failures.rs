//! Upstreams that are gone, slow or broken.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use socket2::{Domain, Socket, Type};
use tokio::net::TcpStream;

use crate::support::gateway::{Gateway, OPEN};
use crate::support::upstream::{HELLO, Upstream};
use crate::support::wire::{Head, Wire};

#[track_caller]
fn is(answer: &(Head, String), status: u16, error: &str) {
    let (head, body) = answer;
    assert_eq!(head.status(), status, "{head:?}");
    assert_eq!(head.field("content-type"), Some("application/json"));
    assert_eq!(head.field("cache-control"), Some("no-store"));
    let body: Value = serde_json::from_str(body).unwrap();
    assert_eq!(body["error"], error, "{body}");
    // The layer's budget fields are here, too.
    assert_eq!(head.field("x-ratelimit-limit"), Some("1000000"));
}

async fn failures(gateway: &Gateway, reason: &str) -> f64 {
    gateway.metric(&format!(r#"gateway_upstream_failures_total{{reason="{reason}"}}"#)).await
}

#[tokio::test]
async fn an_upstream_that_is_gone_is_a_bad_gateway() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &[]);
    drop(upstream);
    is(&gateway.get("/").await, 502, "bad_gateway");
    assert_eq!(failures(&gateway, "unreachable").await, 1.0);
    gateway.logs("the upstream cannot be reached").await;
    assert!(gateway.log().contains("WARN ratekeeper_gateway::proxy"), "{}", gateway.log());
}

#[tokio::test]
async fn an_upstream_that_is_back_is_used_again() {
    let upstream = Upstream::start().await;
    let address = upstream.address();
    let gateway = Gateway::start(OPEN, &upstream, &[]);
    drop(upstream);
    assert_eq!(gateway.get("/").await.0.status(), 502);
    let upstream = Upstream::start_at(address).await;
    let serve = async {
        let (mut wire, _) = upstream.request().await;
        wire.send(HELLO).await;
    };
    let (answer, ()) = tokio::join!(gateway.get("/"), serve);
    assert_eq!(answer.1, "hello\n");
}

/// A listener that accepts nobody: clients wait forever to connect.
async fn closed_door() -> (Socket, SocketAddr, Vec<TcpStream>) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut waiting = Vec::new();
    // Until the system's backlog is full.
    while let Ok(Ok(stream)) =
        tokio::time::timeout(Duration::from_millis(500), TcpStream::connect(address)).await
    {
        waiting.push(stream);
    }
    (socket, address, waiting)
}

#[tokio::test]
async fn an_upstream_that_lets_nobody_in_is_not_waited_for() {
    let (_socket, address, _waiting) = closed_door().await;
    let gateway = Gateway::start(OPEN, format!("http://{address}"), &["--connect-timeout", "300ms"]);
    is(&gateway.get("/").await, 504, "gateway_timeout");
    assert_eq!(failures(&gateway, "connect_timeout").await, 1.0);
}

#[tokio::test]
async fn an_upstream_that_does_not_answer_is_not_waited_for() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &["--response-timeout", "300ms"]);
    let (answer, (mut wire, _)) = tokio::join!(gateway.get("/"), upstream.request());
    is(&answer, 504, "gateway_timeout");
    assert_eq!(failures(&gateway, "response_timeout").await, 1.0);
    // And sees that nobody waits.
    assert_eq!(wire.some().await, 0);
}

#[tokio::test]
async fn all_of_a_request_has_its_time() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &["--request-timeout", "500ms"]);
    let (answer, _) = tokio::join!(gateway.get("/"), upstream.request());
    is(&answer, 504, "gateway_timeout");

    // A response without end.
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let (mut wire, _) = upstream.request().await;
    wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
    let drip = async {
        while wire.try_send(b"1\r\nx\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let (rest, ()) = tokio::join!(client.rest(), drip);
    assert!(rest.starts_with("HTTP/1.1 200 OK") && !rest.ends_with("0\r\n\r\n"), "{rest}");
}

#[tokio::test]
async fn garbage_is_a_bad_gateway() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &[]);
    for garbage in
        ["nonsense\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n"]
    {
        let serve = async {
            let (mut wire, _) = upstream.request().await;
            wire.send(garbage).await;
            wire
        };
        let (answer, _wire) = tokio::join!(gateway.get("/"), serve);
        is(&answer, 502, "bad_gateway");
    }
    assert_eq!(failures(&gateway, "broken").await, 3.0);
}

async fn post(gateway: &Gateway) -> (Head, String) {
    let mut client = gateway.connect().await;
    client.send("POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await;
    client.answer().await
}

/// A connection to the upstream that has been used and is open, as the gateway believes.
async fn used(gateway: &Gateway, upstream: &Upstream) -> Wire {
    let serve = async {
        let (mut wire, _) = upstream.request().await;
        wire.send(HELLO).await;
        wire
    };
    let ((head, _), wire) = tokio::join!(gateway.get("/"), serve);
    assert_eq!(head.status(), 200);
    wire
}

#[tokio::test]
async fn what_is_safe_is_asked_again_when_the_connection_was_closed() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &[]);
    let mut wire = used(&gateway, &upstream).await;
    let serve = async {
        // At the moment it is used again.
        wire.head().await;
        drop(wire);
        let (mut wire, _) = upstream.request().await;
        wire.send(HELLO).await;
    };
    let ((head, _), ()) = tokio::join!(gateway.get("/"), serve);
    assert_eq!(head.status(), 200);
    assert_eq!(gateway.metric("gateway_upstream_retries_total").await, 1.0);
}

#[tokio::test]
async fn what_changes_something_is_not_asked_again() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &[]);
    let mut wire = used(&gateway, &upstream).await;
    let serve = async {
        wire.head().await;
        drop(wire);
    };
    let (answer, ()) = tokio::join!(post(&gateway), serve);
    is(&answer, 502, "bad_gateway");
    assert_eq!(gateway.metric("gateway_upstream_retries_total").await, 0.0);
}

#[tokio::test]
async fn an_answer_that_breaks_off_breaks_off() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &["--idle-timeout", "300ms"]);
    for stalls in [false, true] {
        let mut client = gateway.connect().await;
        client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let (mut wire, _) = upstream.request().await;
        wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n").await;
        assert_eq!(client.head().await.status(), 200);
        assert_eq!(client.chunk().await.as_deref(), Some("abc"));
        // Gone or not, the client must not take this for the whole response.
        let _kept = stalls.then_some(wire);
        assert_eq!(client.rest().await, "");
    }
}
