//! What is observed of the Redis store.

use std::time::Duration;

use http::StatusCode;
use ratekeeper::{Limiter, Quota, Rule};
use ratekeeper_redis::{BreakerState, RedisStore, Servers};
use ratekeeper_servers::{Builder, RedisServer};

use crate::support::{Recorded, Told, get, send};

const PATIENCE: Duration = Duration::from_secs(20);

async fn limiter(server: &RedisServer, quota: Quota) -> (Limiter, RedisStore) {
    let servers = Servers::one(server.url()).expect("an address");
    let builder = RedisStore::builder(servers).timeout(PATIENCE).denial_cache_ttl(PATIENCE);
    let store = builder.build().expect("a store");
    store.ready(PATIENCE).await.expect("the server works");
    let builder = Limiter::builder().store(store.clone()).rule(Rule::new("fleet", quota));
    (builder.build().expect("good rules"), store)
}

async fn until(store: &RedisStore, is_so: fn(&BreakerState) -> bool) {
    let mut breaker = store.watch_breaker();
    let waited = tokio::time::timeout(PATIENCE, breaker.wait_for(is_so)).await;
    drop(waited.expect("it takes no longer").expect("there is a store"));
}

#[tokio::test]
async fn what_redis_is_asked_is_measured_and_what_it_is_not_is_counted() {
    let recorded = Recorded::start();
    let server = RedisServer::start().expect("a server");
    let (limiter, _) = limiter(&server, Quota::per_hour(2)).await;
    for _ in 0..5 {
        send(&limiter, get("/")).await;
    }
    // Two were admitted, one was denied by Redis, and the others from memory.
    assert_eq!(recorded.value("ratekeeper_store_seconds_count{outcome=\"answered\",store=\"redis\"}"), 3.0);
    assert_eq!(recorded.value("ratekeeper_redis_batch_size_count{}"), 3.0);
    assert_eq!(recorded.value("ratekeeper_redis_batch_size_sum{}"), 3.0);
    assert_eq!(recorded.value("ratekeeper_denied_from_memory_total{store=\"redis\"}"), 2.0);
    assert_eq!(recorded.decisions("fleet", "enforce", "denied"), 3.0);
    assert_eq!(recorded.value("ratekeeper_redis_waiting{}"), 0.0);
}

#[tokio::test]
async fn a_breaker_that_opens_and_closes_is_counted_and_told() {
    let (recorded, told) = (Recorded::start(), Told::start());
    let server = RedisServer::start().expect("a server");
    let (limiter, store) = limiter(&server, Quota::per_hour(100)).await;
    let open = || recorded.value("ratekeeper_redis_breakers_open{}");
    let changes =
        |to: &str| recorded.value(&format!("ratekeeper_redis_breaker_changes_total{{to=\"{to}\"}}"));
    assert_eq!((open(), changes("closed")), (0.0, 1.0));

    server.kill().expect("it can be killed");
    assert_eq!(send(&limiter, get("/")).await, StatusCode::OK, "the rule allows then");
    until(&store, BreakerState::is_open).await;
    assert_eq!((open(), changes("open")), (1.0, 1.0));
    let failed: f64 = ["timeout", "unavailable", "protocol", "breaker_open"]
        .iter()
        .map(|kind| format!("ratekeeper_store_errors_total{{kind=\"{kind}\",store=\"redis\"}}"))
        .filter_map(|series| recorded.all().get(&series).copied())
        .sum();
    assert_eq!(failed, 1.0);
    let [line] = &*told.with("the breaker has opened") else { panic!("{:?}", told.lines()) };
    assert!(line.starts_with("WARN ratekeeper:") && line.contains("store=\"redis\""), "{line}");

    server.restart().expect("it comes back");
    until(&store, |state| !state.is_open()).await;
    assert_eq!((open(), changes("closed")), (0.0, 2.0));
    assert_eq!(told.with("the breaker has closed").len(), 2, "{:?}", told.lines());

    server.kill().expect("it can be killed");
    send(&limiter, get("/")).await;
    until(&store, BreakerState::is_open).await;
    drop((limiter, store));
    // The store is no longer used, so it no longer counts as open. Its task ends when it is next polled.
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while open() != 0.0 {
        assert!(tokio::time::Instant::now() < deadline, "{}", open());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_redis_that_is_not_there_from_the_start_is_told() {
    let (recorded, told) = (Recorded::start(), Told::start());
    let server = RedisServer::start().expect("a server");
    server.kill().expect("it can be killed");
    let servers = Servers::one(server.url()).expect("an address");
    let store = RedisStore::builder(servers).build().expect("a store");
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while told.with("the breaker has opened").is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "{:?}", told.lines());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let changes =
        |to: &str| recorded.value(&format!("ratekeeper_redis_breaker_changes_total{{to=\"{to}\"}}"));
    assert_eq!((recorded.value("ratekeeper_redis_breakers_open{}"), changes("open")), (1.0, 1.0));

    server.restart().expect("it comes back");
    store.ready(PATIENCE).await.expect("the server works");
    assert_eq!((recorded.value("ratekeeper_redis_breakers_open{}"), changes("closed")), (0.0, 1.0));
    assert_eq!(
        told.with("the breaker has opened").len(),
        1,
        "once, however often it was tried: {:?}",
        told.lines()
    );
}

/// A server with these settings.
fn evicting(maxmemory: &str, policy: &str) -> Builder {
    let builder = RedisServer::builder().config(format!("maxmemory {maxmemory}"));
    builder.config(format!("maxmemory-policy {policy}"))
}

#[tokio::test]
async fn a_redis_that_drives_out_counters_is_told_of_once() {
    let told = Told::start();
    let server = evicting("100mb", "allkeys-lru").start().expect("a server");
    let (limiter, store) = limiter(&server, Quota::per_hour(100)).await;
    let [line] = &*told.with("drives out counters") else { panic!("{:?}", told.lines()) };
    assert!(line.starts_with("WARN ratekeeper:") && line.contains("policy=\"allkeys-lru\""), "{line}");
    server.kill().expect("it can be killed");
    send(&limiter, get("/")).await;
    until(&store, BreakerState::is_open).await;
    server.restart().expect("it comes back");
    until(&store, |state| !state.is_open()).await;
    assert_eq!(told.with("drives out counters").len(), 1, "{:?}", told.lines());
}

#[tokio::test]
async fn nothing_is_told_of_a_redis_that_keeps_counters_or_does_not_say() {
    let told = Told::start();
    let silent = evicting("100mb", "allkeys-lru").user("ratekeeper", "secret", "~ratekeeper:* +@all -info");
    for builder in [evicting("0", "allkeys-lru"), evicting("100mb", "volatile-ttl"), silent] {
        let server = builder.start().expect("a server");
        let (limiter, _) = limiter(&server, Quota::per_hour(100)).await;
        assert_eq!(send(&limiter, get("/")).await, StatusCode::OK);
        assert_eq!(told.with("drives out counters").len(), 0, "{:?}", told.lines());
    }
}
