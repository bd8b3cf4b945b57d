//! Our client against our server: fifty callers of one budget, for each algorithm, in memory and in Redis.
//!
//! Each server has its own client. All servers of a store run at the same time. The argument is how many seconds,
//! 30 if there is none.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use ratekeeper::store::{Charge, RuleName, Store};
use ratekeeper::{IetfDraft, Limiter, LimiterBuilder, Quota, RateLimitLayer, Rule, SECOND, key};
use ratekeeper_client::{Pacer, PacingLayer};
use ratekeeper_redis::{RedisStore, Servers};
use ratekeeper_servers::RedisServer;
use tokio::net::TcpListener;
use tower::util::MapResponseLayer;
use tower::{Layer, ServiceExt};

const CALLERS: usize = 50;

fn cases() -> Vec<Vec<Quota>> {
    let mut cases = Vec::new();
    for (limit, period) in [(100, SECOND), (500, 5 * SECOND)] {
        cases.extend([
            vec![Quota::token_bucket(limit, period)],
            vec![Quota::leaky_bucket(limit, period)],
            vec![Quota::fixed_window(limit, period)],
            vec![Quota::sliding_window(limit, period)],
            vec![Quota::sliding_log(limit, period)],
        ]);
    }
    cases.push(vec![Quota::per_second(100).burst(20), Quota::fixed_window(2_000, 10 * SECOND)]);
    cases.push(vec![
        Quota::sliding_log(200, SECOND),
        Quota::sliding_window(500, 5 * SECOND),
        Quota::per_minute(9_000),
    ]);
    cases
}

#[tokio::main]
async fn main() {
    let seconds = std::env::args().nth(1).map_or(30, |seconds| seconds.parse().expect("a number of seconds"));
    let span = Duration::from_secs(seconds);
    println!("| store | rules | admitted | refused | of the permitted |");
    println!("|---|---|---|---|---|");
    table("memory", span, |limiter| limiter).await;
    let redis = RedisServer::start().expect("redis-server");
    let servers = Servers::one(redis.url()).expect("an address");
    // The server must not fail because the machine is busy: that would be a different benchmark.
    let store = RedisStore::builder(servers).timeout(Duration::from_millis(500)).build().expect("a store");
    // Until it is connected, it decides nothing, and the server would not describe its limits.
    let (rule, quota) = (RuleName::new("connected").expect("a name"), Quota::per_second(1));
    while store.charge(&[Charge::new(rule, "", &quota)]).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    table("Redis", span, |limiter| limiter.store(store.clone())).await;
}

async fn table(store: &str, span: Duration, with_store: impl Fn(LimiterBuilder) -> LimiterBuilder) {
    let mut running = Vec::new();
    for (case, quotas) in cases().into_iter().enumerate() {
        let rule =
            |(n, quota): (usize, &Quota)| Rule::new(format!("case-{case}-{n}"), *quota).key(key::global());
        let limiter = with_store(Limiter::builder()).rules(quotas.iter().enumerate().map(rule)).build();
        let server = serve(limiter.expect("rules that fit together")).await;
        running.push((quotas, tokio::spawn(run(server, span))));
    }
    for (quotas, run) in running {
        let (admitted, refused) = run.await.expect("a run");
        let rate = |quota: &Quota| f64::from(quota.limit()) / quota.period().as_secs_f64();
        let permitted = quotas.iter().map(rate).fold(f64::INFINITY, f64::min) * span.as_secs_f64();
        let rules: Vec<_> = quotas.iter().map(ToString::to_string).collect();
        let share = 100.0 * admitted as f64 / permitted;
        println!("| {store} | {} | {admitted} | {refused} | {share:.1} % |", rules.join(", "));
    }
}

async fn serve(limiter: Limiter) -> SocketAddr {
    let layer = RateLimitLayer::new(limiter).ietf_headers(IetfDraft::Draft11);
    let app = Router::new().route("/", get(|| async { "hello" })).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// Returns how many requests were admitted and refused.
async fn run(server: SocketAddr, span: Duration) -> (u64, u64) {
    let counts = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let count = Arc::clone(&counts);
    let http = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let counted = MapResponseLayer::new(move |response: Response<_>| {
        count[usize::from(response.status() != StatusCode::OK)].fetch_add(1, Ordering::Relaxed);
        response
    });
    let client = PacingLayer::new(Pacer::new()).layer(counted.layer(http));
    let until = Instant::now() + span;
    for _ in 0..CALLERS {
        let client = client.clone();
        tokio::spawn(async move {
            while Instant::now() < until {
                let request =
                    Request::get(format!("http://{server}/")).body(Empty::new()).expect("a request");
                client.clone().oneshot(request).await.expect("a response");
            }
        });
    }
    tokio::time::sleep_until(until.into()).await;
    (counts[0].load(Ordering::Relaxed), counts[1].load(Ordering::Relaxed))
}
