//! One limit for all processes of a service: fifty requests in ten seconds for each client address, whichever
//! process they reach.
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1:6379 LISTEN=127.0.0.1:3000 cargo run -p redis-fleet
//! ```

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::http::Method;
use axum::routing::get;
use example_support::Failure;
use ratekeeper::{ConfigError, FailurePolicy, Limiter, Quota, RateLimitLayer, Rule, Share};
use ratekeeper_redis::RedisStore;
use tokio::net::TcpListener;

/// Never more than fifty in any ten seconds, which is easy to verify by hand. For a steady flow,
/// `Quota::token_bucket` costs less.
const QUOTA: Quota = Quota::sliding_log(50, Duration::from_secs(10));

/// What a process admits by itself while Redis is gone: two processes, as in the README, have a half each.
/// The service stays available to everybody, and from then on no client gets more than it would have with
/// Redis. (What it used before, only Redis knows: in the ten seconds around that moment it may get the quota
/// twice.)
const WITHOUT_REDIS: FailurePolicy = FailurePolicy::Local(Share::one_of(2));

fn limiter(store: RedisStore) -> Result<Limiter, ConfigError> {
    let rule = Rule::new("per-client", QUOTA).on(Method::GET, "/").on_store_failure(WITHOUT_REDIS);
    Limiter::builder().rule(rule).store(store).build()
}

fn app(limiter: Limiter) -> Router {
    Router::new().route("/", get(|| async { "hello\n" })).layer(RateLimitLayer::new(limiter))
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let store = example_support::redis_or("redis://127.0.0.1:6379").await?;
    let limiter = limiter(store)?;
    let listener = example_support::listen().await?;
    Ok(serve(listener, limiter).await?)
}

async fn serve(listener: TcpListener, limiter: Limiter) -> io::Result<()> {
    // With connect info: without it the clients' addresses are unknown, and all clients share one budget.
    axum::serve(listener, app(limiter).into_make_service_with_connect_info::<SocketAddr>()).await
}
