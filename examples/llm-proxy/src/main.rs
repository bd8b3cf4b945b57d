//! A proxy in front of a language model, with requests and tokens a minute for each key: reserved by an
//! estimate, and settled by what the streamed answer cost.
//!
//! ```text
//! cargo run -p llm-proxy
//! ```
//!
//! The README shows what to type then. With `REDIS_URL` all processes share the limits.

mod api_keys;
mod ask;
mod model;
mod usage;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{Method, Request, StatusCode, header};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use ratekeeper::{
    ConfigError, FailurePolicy, IetfDraft, Limiter, Limits, MINUTE, MemoryStore, Quota, RateLimitLayer, Rule,
    Share, Store, key,
};
use ratekeeper_redis::{RedisStore, Servers};
use tokio::net::TcpListener;

use crate::ask::Ask;
use crate::usage::Usage;

const PATH: &str = "/v1/completions";

/// Both are token buckets: nobody has to wait for a window's end, and what was used is refilled evenly.
const REQUESTS: Quota = Quota::token_bucket(10, MINUTE);
const TOKENS: Quota = Quota::token_bucket(2_000, MINUTE);

/// Without Redis each of two processes counts by itself, with half of it. Tokens are money, so none are given
/// out uncounted.
const WITHOUT_REDIS: FailurePolicy = FailurePolicy::Local(Share::one_of(2));

fn limiter<S: Store>(store: S) -> Result<Limiter, ConfigError> {
    let rule = |name, quota| {
        Rule::new(name, quota)
            .on(Method::POST, PATH)
            // A secret, so only its digest is stored.
            .key(key::bearer())
            .on_store_failure(WITHOUT_REDIS)
    };
    let tokens = rule("tokens", TOKENS)
        // Reserved, so that many requests at once cannot spend the same budget.
        .cost_by(|head| head.extension().map_or(1, Ask::tokens))
        // What the answer cost is known when it has ended.
        .settle_in_handler()
        // A response without an answer costs nothing.
        .free_when(|response| !response.status().is_success());
    Limiter::builder().rules([rule("requests", REQUESTS), tokens]).store(store).build()
}

/// The model's address, and connections to it.
#[derive(Clone)]
struct Upstream {
    client: Client<HttpConnector, Body>,
    address: SocketAddr,
}

/// Asks the model, and streams its answer.
async fn complete(
    State(Upstream { client, address }): State<Upstream>,
    limits: Limits,
    Extension(ask): Extension<Ask>,
) -> Response {
    // A new request, not the caller's: the caller's key, for one, is not passed on.
    let request = Request::post(format!("http://{address}{PATH}"))
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(ask.body))
        .expect("the address of a socket is one of a server");
    let answer = match client.request(request).await {
        Ok(answer) if answer.status().is_success() => answer.into_body(),
        Ok(answer) => {
            let why = format!("the model refuses: {}\n", answer.status());
            return (StatusCode::BAD_GATEWAY, why).into_response();
        }
        Err(error) => {
            eprintln!("the model does not answer: {error}");
            return (StatusCode::BAD_GATEWAY, "the model does not answer\n").into_response();
        }
    };
    let metered = limits.meter("tokens", answer, Usage::new(ask.prompt)).expect("there is such a rule");
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::new(metered)).into_response()
}

/// The proxy, in front of a model at this address.
fn app<S: Store>(store: S, address: SocketAddr) -> Result<Router, ConfigError> {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let complete = post(complete)
        // `RateLimit` reports both rules, one line each; `X-RateLimit-…` reports the tightest.
        .route_layer(RateLimitLayer::new(limiter(store)?).ietf_headers(IetfDraft::Draft11))
        // Added later, so they are further out and run first: the rules need to know who asks, and what.
        .route_layer(from_fn(ask::read))
        .route_layer(DefaultBodyLimit::max(ask::MAX_LENGTH))
        .route_layer(from_fn(api_keys::check));
    Ok(Router::new().route(PATH, complete).with_state(Upstream { client, address }))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    match std::env::var_os("REDIS_URL") {
        Some(url) => serve(redis(&url.to_string_lossy()).await?).await,
        None => serve(MemoryStore::new()).await,
    }
}

/// The store in this Redis. If it does not answer, the service starts without it, and uses it once it does.
async fn redis(url: &str) -> anyhow::Result<RedisStore> {
    let servers = Servers::one(url).context("REDIS_URL is not an address such as redis://127.0.0.1:6379")?;
    // The default of 5 ms is for a network of servers, not for a machine that compiles something meanwhile.
    let store = RedisStore::builder(servers).timeout(Duration::from_secs(2)).build()?;
    if let Err(error) = store.ready(Duration::from_secs(2)).await {
        eprintln!("warning: Redis does not answer, so this process goes on without it: {error}");
    }
    Ok(store)
}

async fn serve<S: Store>(store: S) -> anyhow::Result<()> {
    let upstream = TcpListener::bind("127.0.0.1:0").await?;
    let app = app(store, upstream.local_addr()?)?;
    tokio::spawn(async { axum::serve(upstream, model::app(model::PACE)).await });
    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener =
        TcpListener::bind(&address).await.with_context(|| format!("cannot listen on LISTEN={address}"))?;
    // The actual address: port 0 picks a free port.
    println!("listening on http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}

#[cfg(test)]
mod tests;
