//! A URL shortener with three limits, each by the algorithm that fits it.
//!
//! ```text
//! cargo run -p url-shortener
//! ```
//!
//! The README shows what to type then. With `REDIS_URL` all processes share the limits.

mod accounts;
mod links;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use axum::extract::rejection::StringRejection;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use ratekeeper::{
    ConfigError, DAY, FailurePolicy, HOUR, IetfDraft, Limiter, MINUTE, MemoryStore, MissingKey, Quota,
    RateLimitLayer, Rule, Store, key,
};
use ratekeeper_redis::{RedisStore, Servers};
use tokio::net::TcpListener;

use crate::accounts::Account;
use crate::links::{Links, MAX_LENGTH, Target};

/// Following links: a token bucket. A page with fifty short links on it is followed in one burst, and then
/// there is nothing for a while. A bucket forgives the burst, refills evenly, and never makes anybody wait
/// for a window's end: a client that has used it up continues at 1,000 a minute.
const FOLLOW: Quota = Quota::token_bucket(1_000, MINUTE);

/// Making links, for each address: a sliding window. This is against spam, and spammers adapt: with a fixed
/// window 200 links could be made within seconds around the full hour. And it costs no more memory for a
/// hundred an hour than for one, unlike a log.
const SHORTEN_PER_ADDRESS: Quota = Quota::sliding_window(100, HOUR);

/// Making links, for each account: a fixed window. It is what the account was promised, "1,000 links a day",
/// and people can plan for a budget that resets at midnight (UTC). An account can use two days' links around
/// midnight, but that is what it was promised, too.
const SHORTEN_PER_ACCOUNT: Quota = Quota::fixed_window(1_000, DAY);
const SHORTEN_PREMIUM: Quota = Quota::fixed_window(10_000, DAY);

fn limiter<S: Store>(store: S) -> Result<Limiter, ConfigError> {
    // Without Redis nobody knows who follows how many links, and a dead link is worse than too many requests
    // for it. (This is the default.)
    let follow =
        Rule::new("follow", FOLLOW).on(Method::GET, "/{code}").on_store_failure(FailurePolicy::Allow);
    // But a link can be made a little later, and a day without limits is the day that spammers wait for.
    let per_address = Rule::new("shorten-address", SHORTEN_PER_ADDRESS)
        .on(Method::POST, "/shorten")
        .on_store_failure(FailurePolicy::Deny);
    let per_account = Rule::new("shorten-account", SHORTEN_PER_ACCOUNT)
        .on(Method::POST, "/shorten")
        .key(key::extension(|account: &Account| account.id))
        // Without an account the handler answers 401. The address is counted nevertheless, so that nobody can
        // try one key after the other for as long as it takes.
        .on_missing_key(MissingKey::Skip)
        .tier("premium", SHORTEN_PREMIUM)
        .tier_by_async(|head| {
            let account = head.extension::<Account>().copied();
            async move { accounts::tier(account?).await }
        })
        // What does not become a link counts for the address: its limit is on requests, good or bad. But the
        // account was promised links, so it is refunded.
        .free_when(|response| response.status() != StatusCode::CREATED)
        .on_store_failure(FailurePolicy::Deny);
    Limiter::builder().rules([follow, per_address, per_account]).store(store).build()
}

/// Makes a link: 201 with its path, 401 without an account, 400 for what is not a web address, 413 for what
/// is too long.
async fn shorten(
    State(links): State<Links>,
    account: Option<Extension<Account>>,
    url: Result<String, StringRejection>,
) -> Result<Response, Response> {
    if account.is_none() {
        let who = (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], "who are you?\n");
        return Err(who.into_response());
    }
    let url = url.map_err(IntoResponse::into_response)?;
    let target: Target = url.parse().map_err(|why| (StatusCode::BAD_REQUEST, why).into_response())?;
    let path = format!("/{}", links.add(target));
    let body = format!("{path}\n");
    Ok((StatusCode::CREATED, [(header::LOCATION, path)], body).into_response())
}

/// Follows a link, with a temporary redirect: a permanent one is cached, and would no longer be counted.
async fn follow(
    State(links): State<Links>,
    Path(code): Path<String>,
) -> Result<(StatusCode, [(header::HeaderName, HeaderValue); 1]), (StatusCode, &'static str)> {
    let target = links.find(&code).ok_or((StatusCode::NOT_FOUND, "there is no such link\n"))?;
    Ok((StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, target.into())]))
}

fn app(limiter: Limiter) -> Router {
    // `RateLimit` reports all rules of a request, one line each; `X-RateLimit-…` reports the tightest.
    let limit = RateLimitLayer::new(limiter).ietf_headers(IetfDraft::Draft11);
    Router::new()
        .route("/shorten", post(shorten).layer(DefaultBodyLimit::max(MAX_LENGTH)))
        .route("/{code}", get(follow))
        .layer(limit)
        // Added later, so it is further out and runs first: the rules need to know the account.
        .layer(from_fn(accounts::authenticate))
        .with_state(Links::default())
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
    let app = app(limiter(store)?);
    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener =
        TcpListener::bind(&address).await.with_context(|| format!("cannot listen on LISTEN={address}"))?;
    // The actual address: port 0 picks a free port.
    println!("listening on http://{}", listener.local_addr()?);
    // With connect info: without it the clients' addresses are unknown, and all clients share one budget.
    Ok(axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?)
}

#[cfg(test)]
mod tests;
