//! The layer on a hyper server, without axum: five requests in ten seconds for each client address.
//!
//! ```text
//! cargo run -p hyper-only
//! ```

use std::convert::Infallible;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use ratekeeper::key::PeerAddr;
use ratekeeper::{Quota, RateLimit, RateLimitLayer};
use tokio::net::TcpListener;
use tower::util::ServiceFn;
use tower::{Layer, ServiceBuilder, service_fn};

const QUOTA: Quota = Quota::sliding_log(5, Duration::from_secs(10));

type Body = Full<Bytes>;
type Hello<B> = fn(Request<B>) -> std::future::Ready<Result<Response<Body>, Infallible>>;

fn app<B>() -> RateLimit<ServiceFn<Hello<B>>> {
    let hello: Hello<B> = |_| std::future::ready(Ok(Response::new(Body::from("hello\n"))));
    // It says hello whatever the method, so preflights count as well.
    RateLimitLayer::new(QUOTA).charge_preflights(true).layer(service_fn(hello))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener =
        TcpListener::bind(&address).await.with_context(|| format!("cannot listen on LISTEN={address}"))?;
    // The actual address: port 0 picks a free port.
    println!("listening on http://{}", listener.local_addr()?);
    serve(listener).await;
    Ok(())
}

async fn serve(listener: TcpListener) {
    // One for all connections: its clones share their budgets.
    let app = app::<Incoming>();
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Usually too many open files, which passes.
                eprintln!("cannot accept: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Only the server knows the peer, so it adds it to every request of the connection.
        let tell_peer = move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(PeerAddr(peer));
            request
        };
        let service = ServiceBuilder::new().map_request(tell_peer).service(app.clone());
        let connection =
            http1::Builder::new().serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                eprintln!("{peer}: {error}");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use http::StatusCode;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tower::ServiceExt;

    use super::*;

    async fn status(app: &RateLimit<ServiceFn<Hello<()>>>, peer: [u8; 4]) -> StatusCode {
        let mut request = Request::new(());
        request.extensions_mut().insert(PeerAddr(SocketAddr::from((peer, 1234))));
        app.clone().oneshot(request).await.unwrap().status()
    }

    #[tokio::test]
    async fn each_address_has_five() {
        let app = app();
        for _ in 0..5 {
            assert_eq!(status(&app, [192, 0, 2, 1]).await, StatusCode::OK);
        }
        assert_eq!(status(&app, [192, 0, 2, 1]).await, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(status(&app, [192, 0, 2, 2]).await, StatusCode::OK);
    }

    #[tokio::test]
    async fn the_sixth_request_over_a_socket_is_denied() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener));
        for status in ["200", "200", "200", "200", "200", "429"] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
            let mut response = String::new();
            stream.read_to_string(&mut response).await.unwrap();
            assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{response}");
        }
    }
}
