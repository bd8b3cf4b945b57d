//! Which requests are sent again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::any;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use ratekeeper_client::{Paced, Pacer, PacingLayer, Retries};
use tower::{Layer, ServiceExt};

use crate::support::{Body, client, serve};

/// Refuses the first requests without saying for how long, and echoes the body of later ones.
async fn refusing(first: usize, status: StatusCode) -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let app = Router::new().fallback(any(move |body: Bytes| {
        let is_refused = count.fetch_add(1, Ordering::SeqCst) < first;
        async move { if is_refused { status.into_response() } else { body.into_response() } }
    }));
    (serve(app).await, calls)
}

fn pacer(retries: Retries) -> Pacer {
    Pacer::builder().retries(retries.backoff(Duration::from_millis(5), Duration::from_millis(20))).build()
}

fn request(server: std::net::SocketAddr, method: Method, body: &'static str) -> Request<Body> {
    Request::builder().method(method).uri(format!("http://{server}/")).body(Body::from(body)).unwrap()
}

fn paced<B>(response: &Response<B>) -> u32 {
    response.extensions().get::<Paced>().unwrap().retries
}

#[tokio::test]
async fn an_idempotent_request_is_sent_again_with_its_body() {
    for status in [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE] {
        let (server, calls) = refusing(2, status).await;
        let (client, _) = client(pacer(Retries::new()));
        let response = client.oneshot(request(server, Method::PUT, "body")).await.unwrap();
        assert_eq!((response.status(), paced(&response)), (StatusCode::OK, 2));
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "body");
        assert_eq!(calls.load(Ordering::SeqCst), 3);
    }
}

#[tokio::test]
async fn other_requests_are_sent_once_and_the_refusal_is_returned() {
    let (server, calls) = refusing(1, StatusCode::TOO_MANY_REQUESTS).await;
    let (client, _) = client(pacer(Retries::new()));
    let response = client.oneshot(request(server, Method::POST, "body")).await.unwrap();
    assert_eq!((response.status(), paced(&response)), (StatusCode::TOO_MANY_REQUESTS, 0));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_body_that_cannot_be_copied_is_sent_once() {
    let (server, calls) = refusing(3, StatusCode::TOO_MANY_REQUESTS).await;
    let http = Client::builder(TokioExecutor::new()).build_http();
    // By default, only empty bodies are copied.
    let client = PacingLayer::new(pacer(Retries::new())).layer(http);
    let response = client.clone().oneshot(request(server, Method::PUT, "body")).await.unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    let response = client.oneshot(request(server, Method::PUT, "")).await.unwrap();
    assert_eq!((response.status(), calls.load(Ordering::SeqCst)), (StatusCode::OK, 4));
}

#[tokio::test]
async fn retries_end_with_their_number_and_with_the_budget() {
    let (server, calls) = refusing(usize::MAX, StatusCode::SERVICE_UNAVAILABLE).await;
    let (client, _) = client(pacer(Retries::new().max_retries(3).budget(4, 0.1)));
    let mut sent = Vec::new();
    for _ in 0..4 {
        let before = calls.load(Ordering::SeqCst);
        let response = client.clone().oneshot(request(server, Method::GET, "")).await.unwrap();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        sent.push(calls.load(Ordering::SeqCst) - before);
    }
    assert_eq!(sent, [4, 2, 1, 1]);
}
