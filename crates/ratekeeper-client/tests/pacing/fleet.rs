//! Several processes, as several pacers that share nothing but Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::any;
use http::StatusCode;
use ratekeeper::{Limiter, Quota, RateLimitLayer};
use ratekeeper_client::Pacer;
use ratekeeper_redis::{RedisStore, Servers};
use ratekeeper_servers::RedisServer;
use tokio::time::Instant;
use tower::ServiceExt;

use crate::support::{client, get, hello, load, rule, serve};

/// A process with its own connections.
fn process(redis: &RedisServer, quota: Quota) -> Pacer {
    // A client has time.
    let store = RedisStore::builder(Servers::one(redis.url()).unwrap())
        .timeout(Duration::from_secs(1))
        .build()
        .unwrap();
    Pacer::builder().shared_quota(quota, store).unwrap().build()
}

#[tokio::test(flavor = "multi_thread")]
async fn together_they_stay_under_the_limit() {
    let redis = RedisServer::start().unwrap();
    // The server says nothing about its limit.
    let limiter = Limiter::builder().rule(rule("r", Quota::per_second(60).burst(15))).build().unwrap();
    let server = serve(hello().layer(RateLimitLayer::new(limiter).x_ratelimit_headers(false))).await;
    let mut running = Vec::new();
    for _ in 0..3 {
        let (client, record) = client(process(&redis, Quota::per_second(60).burst(10)));
        running.push(tokio::spawn(async move {
            load(&client, server, 10, Duration::from_secs(2)).await;
            (record.refused(), record.admitted())
        }));
    }
    let mut admitted = Vec::new();
    for process in running {
        let (refused, sent) = process.await.unwrap();
        assert_eq!(refused, 0);
        admitted.push(sent);
    }
    let total: usize = admitted.iter().sum();
    assert!(total >= 60, "{admitted:?}");
    assert!(admitted.iter().all(|sent| *sent >= total / 10), "each has a share: {admitted:?}");
}

#[tokio::test]
async fn a_pause_of_one_stops_all() {
    let redis = RedisServer::start().unwrap();
    let is_refusing = Arc::new(AtomicBool::new(true));
    let refuse = Arc::clone(&is_refusing);
    let server = serve(Router::new().fallback(any(move || {
        let is_refused = refuse.swap(false, Ordering::SeqCst);
        async move {
            if is_refused {
                (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "2")]).into_response()
            } else {
                StatusCode::OK.into_response()
            }
        }
    })))
    .await;
    let quota = Quota::per_second(1_000);
    is_refusing.store(false, Ordering::SeqCst);
    let ((first, _), (second, _)) = (client(process(&redis, quota)), client(process(&redis, quota)));
    for client in [&first, &second] {
        client.clone().oneshot(get(server)).await.unwrap();
    }
    is_refusing.store(true, Ordering::SeqCst);
    let refused_at = Instant::now();
    let refused = tokio::spawn(first.oneshot(get(server)));
    while is_refusing.load(Ordering::SeqCst) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // The refusal has to reach the first process, and its pause Redis.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(second.oneshot(get(server)).await.unwrap().status(), StatusCode::OK);
    assert!(refused_at.elapsed() >= Duration::from_secs(2), "{:?}", refused_at.elapsed());
    assert!(refused_at.elapsed() < Duration::from_secs(4), "{:?}", refused_at.elapsed());
    assert_eq!(refused.await.unwrap().unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn without_the_store_each_keeps_to_the_quota_by_itself() {
    let redis = RedisServer::start().unwrap();
    let server = serve(hello()).await;
    let (client, record) = client(process(&redis, Quota::per_second(20).burst(5)));
    client.clone().oneshot(get(server)).await.unwrap();
    redis.kill().unwrap();
    let started = Instant::now();
    load(&client, server, 10, Duration::from_secs(3)).await;
    // The first one, the burst, and what came back since.
    let most = 1.0 + 5.0 + 20.0 * started.elapsed().as_secs_f64();
    assert!(record.admitted() as f64 <= most, "{} of {most}", record.admitted());
    assert!(record.admitted() >= 10, "{}", record.admitted());
}
