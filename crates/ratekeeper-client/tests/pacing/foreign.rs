//! Servers that say less than ours.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::any;
use http::StatusCode;
use ratekeeper::{Limiter, Quota, RateLimitLayer};
use ratekeeper_client::{Pacer, Retries};
use tokio::time::Instant;

use crate::support::{client, get, hello, load, rule, serve};
use tower::ServiceExt;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_only_sends_retry_after_does_not_refuse_twice_in_a_row() {
    let limiter = Limiter::builder().rule(rule("r", Quota::per_second(40))).build().unwrap();
    let server = serve(hello().layer(RateLimitLayer::new(limiter).x_ratelimit_headers(false))).await;
    let (client, record) = client(Pacer::builder().retries(Retries::new().budget(1_000, 1.0)).build());
    load(&client, server, 50, Duration::from_millis(3_500)).await;
    assert!(record.refused() > 0, "nothing else describes the limit");
    assert_eq!(record.refused_in_a_row(), 0, "{record:?}");
    assert!(record.admitted() >= 60, "{}", record.admitted());
}

/// A window of a second, described as GitHub does.
fn github(limit: u32) -> Router {
    let window = Arc::new(Mutex::new((0, 0)));
    Router::new().fallback(any(move || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let mut window = window.lock().unwrap();
        if window.0 != now {
            *window = (now, 0);
        }
        let is_admitted = window.1 < limit;
        window.1 += u32::from(is_admitted);
        let status = if is_admitted { StatusCode::OK } else { StatusCode::FORBIDDEN };
        let fields = [
            ("x-ratelimit-limit", limit.to_string()),
            ("x-ratelimit-remaining", (limit - window.1).to_string()),
            ("x-ratelimit-used", window.1.to_string()),
            ("x-ratelimit-resource", "core".to_owned()),
            ("x-ratelimit-reset", (now + 1).to_string()),
        ];
        let response = (status, fields).into_response();
        async move { response }
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_as_github_sends_them_are_kept_to() {
    let server = serve(github(50)).await;
    let (client, record) = client(Pacer::new());
    load(&client, server, 50, Duration::from_millis(2_500)).await;
    assert_eq!(record.refused_in_a_row(), 0, "{record:?}");
    assert!(record.admitted() >= 50, "{}", record.admitted());
}

#[tokio::test]
async fn a_server_without_fields_is_not_slowed_down() {
    let slow = Router::new().fallback(any(|| tokio::time::sleep(Duration::from_millis(100))));
    let server = serve(slow).await;
    let (client, record) = client(Pacer::new());
    client.clone().oneshot(get(server)).await.unwrap();
    let started = Instant::now();
    let calls = (0..50).map(|_| tokio::spawn(client.clone().oneshot(get(server))));
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap().unwrap();
    }
    assert_eq!(record.admitted(), 51);
    assert!(started.elapsed() < Duration::from_secs(1), "all at once: {:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_is_known_in_advance_is_kept_to_from_the_first_request_on() {
    // The server enforces the same, and says nothing.
    let quota = Quota::per_second(40).burst(10);
    let limiter = Limiter::builder().rule(rule("r", Quota::per_second(40).burst(12))).build().unwrap();
    let server = serve(hello().layer(RateLimitLayer::new(limiter).x_ratelimit_headers(false))).await;
    let (client, record) = client(Pacer::builder().quota(quota).unwrap().build());
    load(&client, server, 50, Duration::from_secs(2)).await;
    assert_eq!(record.refused(), 0);
    assert!(record.admitted() >= 80, "{}", record.admitted());
    assert!(Pacer::builder().quota(Quota::per_second(0)).is_err());
}
