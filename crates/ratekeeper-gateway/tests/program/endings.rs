//! Shutdown.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use rustix::process::Signal;
use tokio::net::TcpStream;

use crate::support::gateway::{Gateway, OPEN};
use crate::support::upstream::{HELLO, Upstream, answering};
use crate::support::wire::{PATIENCE, soon};
use crate::upgrades::{echo, say, socket};

/// Waits until it accepts no connections.
async fn closed(gateway: &Gateway) {
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(gateway.address).await.is_ok() {
        assert!(Instant::now() < deadline, "it still listens");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn what_is_under_way_comes_to_its_end() {
    for signal in [Signal::TERM, Signal::INT] {
        let upstream = Upstream::start().await;
        let mut gateway = Gateway::start(OPEN, &upstream, &["--grace", "1h"]);
        let mut idle = gateway.connect().await;
        let mut client = gateway.connect().await;
        client.send("POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n").await;
        let (mut wire, _) = upstream.request().await;
        wire.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
        assert_eq!(client.head().await.status(), 200);
        assert_eq!(gateway.admin("/readyz").await, (200, "ready\n".to_owned()));

        gateway.signal(signal);
        closed(&gateway).await;
        assert_eq!(idle.rest().await, "");
        assert_eq!(gateway.admin("/readyz").await, (503, "ending\n".to_owned()));
        assert_eq!(gateway.admin("/healthz").await.0, 200);
        // Both directions still work.
        client.send_chunk("up").await;
        assert_eq!(wire.chunk().await.as_deref(), Some("up"));
        wire.send_chunk("down").await;
        assert_eq!(client.chunk().await.as_deref(), Some("down"));
        client.send("0\r\n\r\n").await;
        wire.send("0\r\n\r\n").await;
        assert_eq!(client.chunks().await.0, "");
        // That was the last thing to wait for.
        assert_eq!(gateway.ended().await.code(), Some(0));
        assert_eq!(client.rest().await, "");
    }
}

#[tokio::test]
async fn an_upgraded_connection_is_cut_when_its_time_is_up() {
    let mut gateway = Gateway::start(OPEN, echo().await, &["--grace", "1s"]);
    let mut client = socket(&gateway).await.unwrap();
    say(&mut client, "before").await;
    let start = Instant::now();
    gateway.signal(Signal::TERM);
    closed(&gateway).await;
    // The machine may have been too busy for it.
    if start.elapsed() < Duration::from_millis(500) {
        say(&mut client, "still here").await;
    }
    while let Some(Ok(_)) = soon(client.next()).await {}
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert_eq!(gateway.ended().await.code(), Some(0));
    gateway.logs("cut off what was still under way").await;
}

#[tokio::test]
async fn a_second_signal_ends_at_once() {
    let upstream = Upstream::start().await;
    let mut gateway = Gateway::start(OPEN, &upstream, &["--grace", "1h"]);
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let (mut wire, _) = upstream.request().await;
    gateway.signal(Signal::TERM);
    closed(&gateway).await;
    gateway.signal(Signal::INT);
    assert_eq!(gateway.ended().await.code(), Some(0));
    assert_eq!((client.rest().await.as_str(), wire.some().await), ("", 0));
}

#[tokio::test]
async fn without_work_it_ends_at_once() {
    let mut gateway = Gateway::start(OPEN, answering(HELLO).await, &["--grace", "1h"]);
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(client.answer().await.0.status(), 200);
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.ended().await.code(), Some(0));
    gateway.logs("INFO ratekeeper_gateway: ending signal=\"SIGTERM\"").await;
    gateway.logs("INFO ratekeeper_gateway: ended").await;
}

#[tokio::test]
async fn who_is_held_back_is_answered() {
    // One an hour: the second request waits for that long.
    let rules = "[[rules]]\nname = \"slow\"\nquota = \"1/hour leaky-bucket capacity 2\"\n";
    let mut gateway = Gateway::start(rules, answering(HELLO).await, &["--grace", "1h"]);
    assert_eq!(gateway.get("/").await.0.status(), 200);
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    gateway.metric_becomes("gateway_requests_open", 1.0).await;
    gateway.signal(Signal::TERM);
    assert_eq!(client.head().await.status(), 503);
    assert_eq!(gateway.ended().await.code(), Some(0));
}
