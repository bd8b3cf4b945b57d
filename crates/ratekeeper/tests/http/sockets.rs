//! Over real sockets.

use std::net::{IpAddr, SocketAddr};

use axum::Router;
use axum::routing::get;
use ratekeeper::key::{self, TrustedProxies};
use ratekeeper::{IetfDraft, Limiter, Quota, RateLimitLayer, Rule};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

/// A server that ends with the test.
async fn serve(layer: RateLimitLayer, connect_info: bool) -> SocketAddr {
    let app = Router::new().route("/", get(|| async { "hello" })).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        if connect_info {
            axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await
        } else {
            axum::serve(listener, app).await
        }
    });
    address
}

fn layer(rule: Rule) -> RateLimitLayer {
    RateLimitLayer::new(Limiter::builder().rule(rule).build().unwrap())
}

/// The whole response to one request from an address, in lower case.
async fn fetch(server: SocketAddr, from: &str, fields: &[&str]) -> String {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from.parse::<IpAddr>().unwrap(), 0).into()).unwrap();
    let mut stream = socket.connect(server).await.unwrap();
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    let request = format!("GET /?x=1 HTTP/1.1\r\nhost: example.com\r\nconnection: close\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.unwrap();
    String::from_utf8(response).unwrap().to_lowercase()
}

async fn status(server: SocketAddr, from: &str, fields: &[&str]) -> u16 {
    let response = fetch(server, from, fields).await;
    response.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn each_peer_has_a_budget_of_its_own() {
    let server = serve(RateLimitLayer::new(Quota::per_hour(2)), true).await;
    for peer in ["127.0.0.1", "127.0.0.2"] {
        assert_eq!(status(server, peer, &[]).await, 200);
        assert_eq!(status(server, peer, &["x-forwarded-for: 203.0.113.9"]).await, 200);
        assert_eq!(status(server, peer, &["x-forwarded-for: 203.0.113.10"]).await, 429);
    }
}

#[tokio::test]
async fn without_connect_info_all_peers_share_a_budget_and_none_sees_a_500() {
    let server = serve(RateLimitLayer::new(Quota::per_hour(2)), false).await;
    assert_eq!(status(server, "127.0.0.1", &[]).await, 200);
    assert_eq!(status(server, "127.0.0.2", &[]).await, 200);
    assert_eq!(status(server, "127.0.0.3", &[]).await, 429);
}

#[tokio::test]
async fn clients_behind_a_trusted_proxy_are_told_apart_and_nobody_else_is_believed() {
    let key = key::client_ip(TrustedProxies::networks(["127.0.0.1"]).unwrap());
    let server = serve(layer(Rule::new("r", Quota::per_hour(1)).key(key)), true).await;
    // Through the proxy, which appends the client's address; what precedes it was made up by the client.
    for client in ["203.0.113.9", "203.0.113.10:4711", "[2001:db8:0:1::1]:80"] {
        let first = format!("X-Forwarded-For: 1.1.1.1, {client}");
        let second = format!("X-Forwarded-For: 2.2.2.2, {client}");
        assert_eq!(status(server, "127.0.0.1", &[&first]).await, 200, "{client}");
        assert_eq!(status(server, "127.0.0.1", &[&second]).await, 429, "{client}");
        let lines = ["X-Forwarded-For: 3.3.3.3", &format!("X-Forwarded-For: {client}")];
        assert_eq!(status(server, "127.0.0.1", &lines).await, 429, "{client}");
    }
    // Bypassing the proxy.
    assert_eq!(status(server, "127.0.0.2", &["X-Forwarded-For: 203.0.113.20"]).await, 200);
    assert_eq!(status(server, "127.0.0.2", &["X-Forwarded-For: 203.0.113.21"]).await, 429);
}

#[tokio::test]
async fn a_client_sees_all_that_it_is_to_see() {
    let layer = RateLimitLayer::new(Quota::per_hour(1)).ietf_headers(IetfDraft::Draft11);
    let server = serve(layer, true).await;
    let admitted = fetch(server, "127.0.0.1", &[]).await;
    assert!(admitted.starts_with("http/1.1 200"), "{admitted}");
    for line in [
        "x-ratelimit-limit: 1\r\n",
        "x-ratelimit-remaining: 0\r\n",
        "x-ratelimit-reset: ",
        "ratelimit-policy: \"default\";q=1;w=3600\r\n",
        "ratelimit: \"default\";r=0;t=3600\r\n",
        // From which a client can tell how far its clock is off.
        "\r\ndate: ",
    ] {
        assert!(admitted.contains(line), "{line} {admitted}");
    }
    let denied = fetch(server, "127.0.0.1", &[]).await;
    assert!(denied.starts_with("http/1.1 429 too many requests\r\n"), "{denied}");
    for line in [
        "retry-after: 3",
        "cache-control: no-store\r\n",
        "content-type: application/json\r\n",
        "content-length: ",
    ] {
        assert!(denied.contains(line), "{line} {denied}");
    }
    let body = denied.split_once("\r\n\r\n").unwrap().1;
    assert_eq!(serde_json::from_str::<serde_json::Value>(body).unwrap()["error"], "rate_limited");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_at_once_on_a_limit_of_ten_are_ten() {
    let server = serve(RateLimitLayer::new(Quota::per_hour(10)), true).await;
    let clients: Vec<_> =
        (0..200).map(|_| tokio::spawn(async move { status(server, "127.0.0.1", &[]).await })).collect();
    let mut counts = (0, 0);
    for client in clients {
        match client.await.unwrap() {
            200 => counts.0 += 1,
            429 => counts.1 += 1,
            other => panic!("{other}"),
        }
    }
    assert_eq!(counts, (10, 190));
}
