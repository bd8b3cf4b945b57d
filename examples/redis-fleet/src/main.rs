//! One limit for all processes of a service: fifty requests in ten seconds for each client address, whichever process
//! they come to.
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1:6379 LISTEN=127.0.0.1:3000 cargo run -p redis-fleet
//! ```

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use axum::Router;
use axum::http::Method;
use axum::routing::get;
use tokio::net::TcpListener;
use tollgate::{ConfigError, FailurePolicy, Limiter, Quota, RateLimitLayer, Rule, Share};
use tollgate_redis::{RedisStore, Servers};

/// Never more than fifty in any ten seconds, so that whoever counts along sees just that. Where a steady flow is
/// meant, `Quota::token_bucket` costs less.
const QUOTA: Quota = Quota::sliding_log(50, Duration::from_secs(10));

/// What a process admits by itself while Redis is gone: two processes, as in the README, have a half each. The
/// service goes on, everybody can use it, and no client gets more than it would have with Redis.
const WITHOUT_REDIS: FailurePolicy = FailurePolicy::Local(Share::one_of(2));

/// How long a request may wait for Redis. The default of 5 ms is for a network that one has to oneself; a machine that
/// runs all of this, and a compiler besides, should not take a pause of its own for an outage.
const DEADLINE: Duration = Duration::from_millis(250);

/// How long to wait for Redis before the first request.
const PATIENCE: Duration = Duration::from_secs(2);

fn limiter(store: RedisStore) -> Result<Limiter<RedisStore>, ConfigError> {
    let rule = Rule::new("per-client", QUOTA).on(Method::GET, "/").on_store_failure(WITHOUT_REDIS);
    Limiter::builder().rule(rule).store(store).build()
}

fn app(limiter: Limiter<RedisStore>) -> Router {
    Router::new().route("/", get(|| async { "hello\n" })).layer(RateLimitLayer::new(limiter))
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), String> {
    let store = store("redis://127.0.0.1:6379")?;
    let listener = listen("127.0.0.1:3000").await?;
    // A service that waits for Redis for ever would be down as well. It begins with its share, and Redis is used from
    // when it is there.
    if let Err(error) = store.ready(PATIENCE).await {
        eprintln!("warning: Redis does not answer, so this process counts by itself: {}", chain(&error));
    }
    let limiter = limiter(store).map_err(|error| error.to_string())?;
    if let Ok(address) = listener.local_addr() {
        println!("listening on http://{address}");
    }
    serve(listener, limiter).await.map_err(|error| error.to_string())
}

/// The store on the server that the environment variable `REDIS_URL` names.
fn store(default: &str) -> Result<RedisStore, String> {
    let url = std::env::var_os("REDIS_URL").unwrap_or_else(|| default.into());
    let servers = Servers::one(&*url.to_string_lossy()).map_err(|error| {
        // What it is instead is not repeated: there may be a password in it.
        let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        format!("REDIS_URL is not an address such as {default}: {reason}")
    })?;
    RedisStore::builder(servers).timeout(DEADLINE).build().map_err(|error| chain(&error))
}

/// Listens where the environment variable `LISTEN` says.
async fn listen(default: &str) -> Result<TcpListener, String> {
    let text = std::env::var_os("LISTEN").unwrap_or_else(|| default.into());
    let text = text.to_string_lossy();
    let address: SocketAddr =
        text.parse().map_err(|_| format!("LISTEN is `{text}`, which is not an address such as {default}"))?;
    TcpListener::bind(address).await.map_err(|error| format!("cannot listen on LISTEN={address}: {error}"))
}

async fn serve(listener: TcpListener, limiter: Limiter<RedisStore>) -> io::Result<()> {
    // With connect info: without it nobody knows the clients' addresses, and all of them share one budget.
    axum::serve(listener, app(limiter).into_make_service_with_connect_info::<SocketAddr>()).await
}

/// An error and what caused it.
fn chain(error: &dyn Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", chain(cause)),
        None => error.to_string(),
    }
}
