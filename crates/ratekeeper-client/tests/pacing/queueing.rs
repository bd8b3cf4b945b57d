//! Waiting: bounded, patient up to a limit, and safe to cancel.

use std::time::Duration;

use axum::Router;
use axum::routing::any;
use http::StatusCode;
use ratekeeper::{Limiter, Quota, SECOND};
use ratekeeper_client::{Error, Pacer};
use tokio::time::Instant;
use tower::ServiceExt;

use crate::support::{client, get, rule, serve, serve_limited};

/// A server that has nothing left after the first request.
async fn spent() -> std::net::SocketAddr {
    let fields = [("ratelimit-policy", r#""r";q=1;w=60"#), ("ratelimit", r#""r";r=0;t=60"#)];
    serve(Router::new().fallback(any(move || async move { (StatusCode::OK, fields) }))).await
}

#[tokio::test]
async fn a_call_that_would_wait_too_long_fails_immediately_and_says_how_long() {
    let server = spent().await;
    let (client, record) = client(Pacer::builder().max_wait(Duration::from_secs(5)).build());
    client.clone().oneshot(get(server)).await.unwrap();
    let started = Instant::now();
    let error = client.oneshot(get(server)).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(1));
    let Error::WaitTooLong { wait } = error else { panic!("{error:?}") };
    assert!((55..=60).contains(&wait.as_secs()), "{wait:?}");
    assert_eq!(record.all().len(), 1, "it was not sent");
}

#[tokio::test]
async fn the_longest_waits_can_be_configured() {
    let server = spent().await;
    let forever = Pacer::builder().max_wait(Duration::MAX).max_pause(Duration::MAX).build();
    let (client, _) = client(forever);
    client.clone().oneshot(get(server)).await.unwrap();
    let call = client.oneshot(get(server));
    assert!(tokio::time::timeout(Duration::from_millis(20), call).await.is_err(), "it waits");
}

#[tokio::test]
async fn a_call_fails_if_too_many_others_wait() {
    let server = spent().await;
    let (client, _) = client(Pacer::builder().max_wait(Duration::from_secs(600)).max_waiting(2).build());
    client.clone().oneshot(get(server)).await.unwrap();
    let mut waiting: Vec<_> = (0..2).map(|_| Box::pin(client.clone().oneshot(get(server)))).collect();
    for call in &mut waiting {
        assert!(tokio::time::timeout(Duration::from_millis(20), call).await.is_err(), "it waits");
    }
    let error = client.clone().oneshot(get(server)).await.unwrap_err();
    assert!(matches!(error, Error::QueueFull), "{error:?}");
    // A caller that goes away leaves its place to another one.
    waiting.pop();
    let call = client.clone().oneshot(get(server));
    assert!(tokio::time::timeout(Duration::from_millis(20), call).await.is_err(), "it waits");
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_go_away_hold_up_nobody() {
    let limiter = Limiter::builder().rule(rule("r", Quota::fixed_window(20, SECOND))).build().unwrap();
    let server = serve_limited(limiter).await;
    let (client, record) = client(Pacer::new());
    client.clone().oneshot(get(server)).await.unwrap();
    let calls: Vec<_> = (0..60).map(|_| tokio::spawn(client.clone().oneshot(get(server)))).collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    // Those at the front, and every other one behind them, go away.
    let mut staying = Vec::new();
    for (n, call) in calls.into_iter().enumerate() {
        if n < 15 || n % 2 == 0 {
            call.abort();
        } else {
            staying.push(call);
        }
    }
    for call in staying {
        assert_eq!(call.await.unwrap().unwrap().status(), StatusCode::OK);
    }
    assert_eq!(record.refused(), 0);
}
