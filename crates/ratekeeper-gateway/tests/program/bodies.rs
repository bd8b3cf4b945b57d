//! Bodies, which are streamed.

use crate::support::gateway::{Gateway, OPEN};
use crate::support::upstream::{HELLO, Upstream, answering};
use crate::support::wire::Wire;

const MEGABYTE: usize = 1 << 20;

/// A client that has sent this head, and the upstream that has received it.
async fn begun(gateway: &Gateway, upstream: &Upstream, head: &str) -> (Wire, Wire) {
    let mut client = gateway.connect().await;
    client.send(format!("{head}\r\nhost: example.com\r\n\r\n")).await;
    let (wire, _) = upstream.request().await;
    (client, wire)
}

#[tokio::test]
async fn a_request_goes_on_while_it_comes() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &[]);
    let (mut client, mut wire) =
        begun(&gateway, &upstream, "POST / HTTP/1.1\r\ntransfer-encoding: chunked").await;
    for text in ["one", "two", "three"] {
        client.send_chunk(text).await;
        // Before the next is sent.
        assert_eq!(wire.chunk().await.as_deref(), Some(text));
    }
    client.send("0\r\n\r\n").await;
    assert_eq!(wire.chunks().await.0, "");
    wire.send(HELLO).await;
    assert_eq!(client.answer().await.1, "hello\n");
}

/// It is rare, but some search engines are queried like this.
#[tokio::test]
async fn a_get_goes_on_with_its_body() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &[]);
    for length in ["transfer-encoding: chunked", "content-length: 3"] {
        let mut client = gateway.connect().await;
        client.send(format!("GET / HTTP/1.1\r\nhost: example.com\r\n{length}\r\n\r\n")).await;
        client.send(if length.starts_with('t') { "3\r\none\r\n0\r\n\r\n" } else { "one" }).await;
        let (mut wire, head) = upstream.request().await;
        assert_eq!(wire.body(&head).await, "one", "{length}");
        wire.send("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 6\r\n\r\nhello\n").await;
        assert_eq!(client.answer().await.1, "hello\n");
    }
}

#[tokio::test]
async fn an_answer_goes_on_while_it_comes() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &[]);
    let (mut client, mut wire) = begun(&gateway, &upstream, "GET / HTTP/1.1").await;
    wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
    assert_eq!(client.head().await.status(), 200);
    for text in ["one", "two", "three"] {
        wire.send_chunk(text).await;
        assert_eq!(client.chunk().await.as_deref(), Some(text));
    }
    wire.send("0\r\n\r\n").await;
    assert_eq!(client.chunks().await.0, "");
}

#[tokio::test]
async fn both_go_on_at_the_same_time() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &[]);
    let (mut client, mut wire) =
        begun(&gateway, &upstream, "POST / HTTP/1.1\r\ntransfer-encoding: chunked").await;
    wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
    assert_eq!(client.head().await.status(), 200);
    for text in ["one", "two", "three"] {
        client.send_chunk(text).await;
        assert_eq!(wire.chunk().await.as_deref(), Some(text));
        wire.send_chunk(text).await;
        assert_eq!(client.chunk().await.as_deref(), Some(text));
    }
}

#[tokio::test]
async fn large_bodies_go_both_ways_and_are_kept_nowhere() {
    const LENGTH: usize = 128 * MEGABYTE;
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &[]);
    let head = format!("POST / HTTP/1.1\r\ncontent-length: {LENGTH}");
    let (mut client, mut wire) = begun(&gateway, &upstream, &head).await;
    let before = gateway.memory();
    let piece = "0123456789abcdef".repeat(MEGABYTE / 16);

    let send = async {
        for _ in 0..LENGTH / MEGABYTE {
            client.send(&piece).await;
        }
    };
    let read = async {
        for _ in 0..LENGTH / MEGABYTE {
            assert!(wire.exactly(MEGABYTE).await == piece);
        }
    };
    tokio::join!(send, read);

    wire.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {LENGTH}\r\n\r\n")).await;
    assert_eq!(client.head().await.field("content-length"), Some(LENGTH.to_string().as_str()));
    let send = async {
        for _ in 0..LENGTH / MEGABYTE {
            wire.send(&piece).await;
        }
    };
    let read = async {
        for _ in 0..LENGTH / MEGABYTE {
            assert!(client.exactly(MEGABYTE).await == piece);
        }
    };
    tokio::join!(send, read);
    let grown = gateway.memory() - before;
    assert!(grown < 16 * MEGABYTE as u64, "{grown} bytes");
}

#[tokio::test]
async fn who_sends_waits_for_who_reads() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &["--idle-timeout", "1h"]);
    let (mut client, mut wire) = begun(&gateway, &upstream, "GET / HTTP/1.1").await;
    wire.send("HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\n").await;
    assert_eq!(client.head().await.status(), 200);
    let before = gateway.memory();
    // Until nothing more can be sent: every buffer between the two is full.
    let piece = vec![b'x'; MEGABYTE];
    let mut sent = 0;
    while tokio::time::timeout(std::time::Duration::from_secs(1), wire.try_send(&piece)).await.is_ok() {
        sent += 1;
        assert!(sent < 1_000, "there is no end of it");
    }
    let grown = gateway.memory() - before;
    assert!(grown < 16 * MEGABYTE as u64, "{grown} bytes");
    // And continues when there is room.
    assert!(client.exactly(MEGABYTE).await.bytes().all(|byte| byte == b'x'));
}

#[tokio::test]
async fn trailers_go_both_ways() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &[]);
    let mut client = gateway.connect().await;
    client
        .send(
            "POST / HTTP/1.1\r\nhost: x\r\nte: trailers\r\nconnection: te\r\ntrailer: x-up\r\n\
             transfer-encoding: chunked\r\n\r\n3\r\none\r\n0\r\nx-up: 1\r\n\r\n",
        )
        .await;
    let (mut wire, head) = upstream.request().await;
    assert_eq!((head.field("te"), head.field("trailer")), (Some("trailers"), Some("x-up")));
    assert_eq!(wire.chunks().await, ("one".to_owned(), vec!["x-up: 1".to_owned()]));
    wire.send("HTTP/1.1 200 OK\r\ntrailer: x-down\r\ntransfer-encoding: chunked\r\n\r\n").await;
    wire.send("3\r\ntwo\r\n0\r\nx-down: 2\r\n\r\n").await;
    assert_eq!(client.head().await.field("trailer"), Some("x-down"));
    assert_eq!(client.chunks().await, ("two".to_owned(), vec!["x-down: 2".to_owned()]));
}

#[tokio::test]
async fn who_expects_to_be_told_to_go_on_is_told() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &[]);
    let head = "POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 3";
    let (mut client, mut wire) = begun(&gateway, &upstream, head).await;
    assert_eq!(client.head().await.line(), "HTTP/1.1 100 Continue");
    client.send("abc").await;
    wire.send("HTTP/1.1 100 Continue\r\n\r\n").await;
    assert_eq!(wire.exactly(3).await, "abc");
    wire.send(HELLO).await;
    assert_eq!(client.answer().await.1, "hello\n");
}

#[tokio::test]
async fn who_is_denied_need_not_send_its_body() {
    let rules = "[[rules]]\nname = \"one\"\nquota = \"1/day\"\n";
    let gateway = Gateway::start(rules, answering(HELLO).await, &[]);
    assert_eq!(gateway.get("/").await.0.status(), 200);
    let mut client = gateway.connect().await;
    client
        .send("POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 1000000\r\n\r\n")
        .await;
    assert_eq!(client.head().await.status(), 429);
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_request_along() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &[]);
    // Before the answer.
    let (client, mut wire) = begun(&gateway, &upstream, "GET / HTTP/1.1").await;
    drop(client);
    assert_eq!(wire.some().await, 0);
    // Within it.
    let (mut client, mut wire) = begun(&gateway, &upstream, "GET / HTTP/1.1").await;
    wire.send("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc").await;
    assert_eq!(client.head().await.status(), 200);
    assert_eq!(client.exactly(3).await, "abc");
    drop(client);
    assert_eq!(wire.some().await, 0);
    // Within the request.
    let (client, mut wire) = begun(&gateway, &upstream, "POST / HTTP/1.1\r\ncontent-length: 100").await;
    drop(client);
    assert_eq!(wire.some().await, 0);
}
