//! One limit for all processes of a service: fifty requests in ten seconds for each client address, whichever
//! process they reach.
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1:6379 LISTEN=127.0.0.1:3000 cargo run -p redis-fleet
//! ```

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::http::Method;
use axum::routing::get;
use ratekeeper::{ConfigError, FailurePolicy, Limiter, Quota, RateLimitLayer, Rule, Share};
use ratekeeper_redis::{RedisStore, Servers};
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
async fn main() -> anyhow::Result<()> {
    let url = std::env::var_os("REDIS_URL").unwrap_or_else(|| "redis://127.0.0.1:6379".into());
    let limiter = limiter(redis(&url.to_string_lossy()).await?)?;
    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener =
        TcpListener::bind(&address).await.with_context(|| format!("cannot listen on LISTEN={address}"))?;
    // The actual address: port 0 picks a free port.
    println!("listening on http://{}", listener.local_addr()?);
    Ok(serve(listener, limiter).await?)
}

/// The store in this Redis.
///
/// A service that waits for Redis indefinitely would be down as well. So this waits for a moment only. After
/// that the service starts with the failure policies of its rules, and uses Redis as soon as it answers.
async fn redis(url: &str) -> anyhow::Result<RedisStore> {
    let servers = Servers::one(url).context("REDIS_URL is not an address such as redis://127.0.0.1:6379")?;
    // The default of 5 ms is for a network of servers, not for a machine that compiles something meanwhile.
    let store = RedisStore::builder(servers).timeout(Duration::from_secs(2)).build()?;
    if let Err(error) = store.ready(Duration::from_secs(2)).await {
        eprintln!("warning: Redis does not answer, so this process goes on without it: {error}");
    }
    Ok(store)
}

async fn serve(listener: TcpListener, limiter: Limiter) -> io::Result<()> {
    // With connect info: without it the clients' addresses are unknown, and all clients share one budget.
    axum::serve(listener, app(limiter).into_make_service_with_connect_info::<SocketAddr>()).await
}
