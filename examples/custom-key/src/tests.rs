use axum::body::Body;
use http_body_util::BodyExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower::ServiceExt;

use super::*;

async fn get(app: &Router, path: &str, token: &str) -> (StatusCode, String) {
    let request = Request::get(path).header("authorization", format!("Bearer {token}"));
    let response = app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

#[tokio::test]
async fn each_user_has_the_quota_of_its_tier() {
    let app = app(limiter().unwrap());
    for left in [2, 1, 0] {
        assert_eq!(get(&app, "/", "alice-token").await.1, format!("hello alice, {left} of 3 left\n"));
    }
    assert_eq!(get(&app, "/", "alice-token").await.0, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(get(&app, "/", "bob-token").await.1, "hello bob, 29 of 30 left\n");
    assert_eq!(get(&app, "/", "carol-token").await.1, "hello carol, as often as you like\n");
}

#[tokio::test]
async fn looking_at_the_budget_costs_nothing() {
    let app = app(limiter().unwrap());
    for _ in 0..5 {
        assert_eq!(get(&app, "/budget", "alice-token").await.1, "free: 3 of 3 left\n");
    }
    assert_eq!(get(&app, "/budget", "carol-token").await.1, "unlimited: no limit\n");
}

#[tokio::test]
async fn strangers_are_turned_away_before_they_are_counted() {
    let app = app(limiter().unwrap());
    for _ in 0..5 {
        assert_eq!(get(&app, "/", "mallory-token").await.0, StatusCode::UNAUTHORIZED);
    }
}

#[tokio::test]
async fn the_fourth_request_over_a_socket_is_denied() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, limiter().unwrap()));
    for status in ["200", "200", "200", "429"] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head =
            "GET / HTTP/1.1\r\nhost: x\r\nauthorization: Bearer alice-token\r\nconnection: close\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{response}");
    }
}
