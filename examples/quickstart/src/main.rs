//! The smallest service with a limit: five requests in ten seconds for each client address.
//!
//! ```text
//! cargo run -p quickstart
//! ```

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::routing::get;
use ratekeeper::{Quota, RateLimitLayer};
use tokio::net::TcpListener;

/// Never more than five in any ten seconds, which is easy to verify by hand. For a steady flow,
/// `Quota::token_bucket` costs less.
const QUOTA: Quota = Quota::sliding_log(5, Duration::from_secs(10));

fn app() -> Router {
    Router::new().route("/", get(|| async { "hello\n" })).layer(RateLimitLayer::new(QUOTA))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener =
        TcpListener::bind(&address).await.with_context(|| format!("cannot listen on LISTEN={address}"))?;
    // The actual address: port 0 picks a free port.
    println!("listening on http://{}", listener.local_addr()?);
    Ok(serve(listener).await?)
}

async fn serve(listener: TcpListener) -> io::Result<()> {
    // With connect info: without it the clients' addresses are unknown, and all clients share one budget.
    axum::serve(listener, app().into_make_service_with_connect_info::<SocketAddr>()).await
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use axum::extract::ConnectInfo;
    use axum::http::{Request, StatusCode};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tower::ServiceExt;

    use super::*;

    fn request(peer: [u8; 4]) -> Request<Body> {
        let mut request = Request::new(Body::empty());
        request.extensions_mut().insert(ConnectInfo(SocketAddr::from((peer, 1234))));
        request
    }

    #[tokio::test]
    async fn each_address_has_five() {
        let app = app();
        for remaining in ["4", "3", "2", "1", "0"] {
            let response = app.clone().oneshot(request([192, 0, 2, 1])).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            assert_eq!(response.headers()["x-ratelimit-remaining"], remaining);
        }
        let denied = app.clone().oneshot(request([192, 0, 2, 1])).await.unwrap();
        assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
        let wait: u64 = denied.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=10).contains(&wait), "{wait}");

        let other = app.oneshot(request([192, 0, 2, 2])).await.unwrap();
        assert_eq!(other.status(), StatusCode::OK);
    }

    async fn get(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }

    #[tokio::test]
    async fn the_sixth_request_over_a_socket_is_denied() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener));
        for _ in 0..5 {
            let response = get(address).await;
            assert!(response.starts_with("HTTP/1.1 200 OK") && response.ends_with("hello\n"), "{response}");
        }
        let denied = get(address).await;
        assert!(denied.starts_with("HTTP/1.1 429 Too Many Requests"), "{denied}");
        assert!(denied.contains(r#"{"error":"rate_limited""#), "{denied}");
    }
}
