//! Connections that switch to another protocol.

use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, accept_async, client_async};

use crate::support::gateway::{Gateway, OPEN};
use crate::support::upstream::{HELLO, Upstream, answering};
use crate::support::wire::soon;

/// A WebSocket through the gateway to an upstream that echoes.
pub(crate) async fn socket(gateway: &Gateway) -> Result<WebSocketStream<TcpStream>, u16> {
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    match soon(client_async(format!("ws://{}/chat", gateway.address), stream)).await {
        Ok((socket, response)) => {
            assert_eq!(response.headers()["upgrade"], "websocket");
            Ok(socket)
        }
        Err(Error::Http(response)) => Err(response.status().as_u16()),
        Err(error) => panic!("{error}"),
    }
}

/// Sends a text, and receives it back.
pub(crate) async fn say(socket: &mut WebSocketStream<TcpStream>, text: &str) {
    soon(socket.send(Message::text(text))).await.unwrap();
    let heard = soon(socket.next()).await.expect("the connection is open").unwrap();
    assert_eq!(heard.into_text().unwrap(), text);
}

/// An upstream that echoes on WebSockets.
pub(crate) async fn echo() -> String {
    let upstream = Upstream::start().await;
    let url = upstream.to_string();
    tokio::spawn(async move {
        loop {
            let stream = upstream.accept().await.into_inner();
            tokio::spawn(async move {
                let mut socket = accept_async(stream).await.unwrap();
                while let Some(Ok(message)) = socket.next().await {
                    if message.is_text() || message.is_binary() {
                        socket.send(message).await.unwrap();
                    }
                }
            });
        }
    });
    url
}

#[tokio::test]
async fn a_websocket_goes_through() {
    let gateway = Gateway::start(OPEN, echo().await, &[]);
    let mut client = socket(&gateway).await.unwrap();
    for text in ["one", "two", &"three".repeat(100_000)] {
        say(&mut client, text).await;
    }
    assert_eq!(gateway.metric("gateway_upgrades_open").await, 1.0);
    soon(client.close(None)).await.unwrap();
    while let Some(Ok(_)) = soon(client.next()).await {}
    drop(client);
    gateway.metric_becomes("gateway_upgrades_open", 0.0).await;
    gateway.metric_becomes("gateway_connections_open", 0.0).await;
}

#[tokio::test]
async fn the_opening_counts_and_the_messages_do_not() {
    let rules = "[[rules]]\nname = \"open\"\nquota = \"2/day\"\n";
    let gateway = Gateway::start(rules, echo().await, &[]);
    let mut first = socket(&gateway).await.unwrap();
    let mut second = socket(&gateway).await.unwrap();
    for client in [&mut first, &mut second] {
        for _ in 0..10 {
            say(client, "hello").await;
        }
    }
    assert_eq!(socket(&gateway).await.err(), Some(429));
}

#[tokio::test]
async fn an_upgraded_connection_is_one_of_those_that_may_be_open() {
    let gateway = Gateway::start(OPEN, echo().await, &["--max-connections", "1"]);
    let mut client = socket(&gateway).await.unwrap();
    let mut waiting = gateway.connect().await;
    waiting.send("GET / HTTP/1.0\r\n\r\n").await;
    say(&mut client, "still here").await;
    assert_eq!(gateway.metric("gateway_connections_open").await, 1.0);
    drop(client);
    // Refused by the upstream, which speaks WebSocket only; but heard.
    assert_ne!(waiting.rest().await, "");
}

#[tokio::test]
async fn any_protocol_will_do_and_each_end_may_go_first() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &[]);
    for client_ends in [true, false] {
        let mut client = gateway.connect().await;
        client.send("GET / HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: echo/2\r\n\r\n").await;
        let (mut wire, head) = upstream.request().await;
        assert_eq!((head.field("connection"), head.field("upgrade")), (Some("upgrade"), Some("echo/2")));
        // The first bytes arrive with the head.
        wire.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo/2\r\n\r\nhi")
            .await;
        let head = client.head().await;
        assert_eq!((head.status(), head.field("upgrade")), (101, Some("echo/2")));
        assert_eq!(client.exactly(2).await, "hi");
        client.send("up").await;
        assert_eq!(wire.exactly(2).await, "up");
        if client_ends {
            drop(client);
            assert_eq!(wire.rest().await, "");
        } else {
            drop(wire);
            assert_eq!(client.rest().await, "");
        }
    }
}

#[tokio::test]
async fn an_end_that_has_gone_is_not_waited_for_by_the_other() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &["--idle-timeout", "300ms"]);
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n").await;
    let (mut wire, _) = upstream.request().await;
    wire.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n").await;
    assert_eq!(client.head().await.status(), 101);
    drop(wire);
    assert_eq!(client.rest().await, "");
    // The client stays, and sends nothing.
    gateway.metric_becomes("gateway_upgrades_open", 0.0).await;
    drop(client);
}

#[tokio::test]
async fn an_upgrade_that_is_refused_is_an_answer() {
    let gateway = Gateway::start(OPEN, answering(HELLO).await, &[]);
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n").await;
    assert_eq!(client.answer().await.1, "hello\n");
    // And the connection is as good as before.
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(client.answer().await.1, "hello\n");
}

#[tokio::test]
async fn another_http_is_not_offered_as_nobody_would_count_its_requests() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &[]);
    let mut client = gateway.connect().await;
    client
        .send("GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n\r\n")
        .await;
    let (mut wire, head) = upstream.request().await;
    assert_eq!((head.field("upgrade"), head.field("connection")), (None, None));
    // Not even if the upstream accepts it.
    wire.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n").await;
    assert_eq!(client.head().await.status(), 502);
}

#[tokio::test]
async fn only_what_was_offered_is_spoken() {
    let upstream = Upstream::start().await;
    let gateway = Gateway::start(OPEN, &upstream, &[]);
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n").await;
    let (mut wire, _) = upstream.request().await;
    wire.send("HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n").await;
    assert_eq!(client.head().await.status(), 502);
    assert_eq!(wire.some().await, 0);
}
