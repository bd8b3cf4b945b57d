//! A URL shortener with three limits, each by the algorithm that fits it.
//!
//! ```text
//! cargo run -p url-shortener
//! ```
//!
//! The README says what to type then. With `REDIS_URL` the limits are those of all processes together.

mod accounts;
mod links;

use std::net::SocketAddr;

use axum::extract::rejection::StringRejection;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use example_support::Failure;
use tollgate::{
    ConfigError, DAY, FailurePolicy, HOUR, IetfDraft, Limiter, MINUTE, MemoryStore, MissingKey, Quota,
    RateLimitLayer, Rule, Store, key,
};

use crate::accounts::Account;
use crate::links::{Links, MAX_LENGTH, Target};

/// Following links: a token bucket. A page with fifty short links on it is followed in one burst, and then there is
/// nothing for a while. A bucket forgives the burst, refills evenly, and never makes anybody wait for a window's end:
/// who has used it up goes on at 1,000 a minute.
const FOLLOW: Quota = Quota::token_bucket(1_000, MINUTE);

/// Making links, for each address: a sliding window. This is against spam, and a spammer counts along: with a fixed window
/// 200 links could be made within seconds around the full hour. And it costs no more memory for a hundred an hour than
/// for one, which a log would.
const SHORTEN_PER_ADDRESS: Quota = Quota::sliding_window(100, HOUR);

/// Making links, for each account: a fixed window. It is what the account was promised, "1,000 links a day", and a
/// promise that begins anew at midnight (UTC) is one that people can reckon with. That an account can use two days'
/// links around midnight is what it was promised, too.
const SHORTEN_PER_ACCOUNT: Quota = Quota::fixed_window(1_000, DAY);
const SHORTEN_PREMIUM: Quota = Quota::fixed_window(10_000, DAY);

fn limiter<S: Store>(store: S) -> Result<Limiter<S>, ConfigError> {
    // Without Redis nobody knows who follows how many links, and a link that leads nowhere is worse than too many
    // who follow it. (This is the default.)
    let follow =
        Rule::new("follow", FOLLOW).on(Method::GET, "/{code}").on_store_failure(FailurePolicy::Allow);
    // But a link can be made a little later, and a day without limits is the day that spammers wait for.
    let per_address = Rule::new("shorten-address", SHORTEN_PER_ADDRESS)
        .on(Method::POST, "/shorten")
        .on_store_failure(FailurePolicy::Deny);
    let per_account = Rule::new("shorten-account", SHORTEN_PER_ACCOUNT)
        .on(Method::POST, "/shorten")
        .key(key::extension(|account: &Account| account.id))
        // Nobody's account: the handler answers 401. The address is counted all the same, so that nobody can try one
        // key after the other for as long as it takes.
        .on_missing_key(MissingKey::Skip)
        .tier("premium", SHORTEN_PREMIUM)
        .tier_by_async(|head| {
            let account = head.extension::<Account>().copied();
            async move { accounts::tier(account?).await }
        })
        .on_store_failure(FailurePolicy::Deny);
    Limiter::builder().rules([follow, per_address, per_account]).store(store).build()
}

#[derive(Clone)]
struct Shortener<S> {
    limiter: Limiter<S>,
    links: Links,
}

/// Makes a link: 201 with its path, 401 without an account, 400 for what is not a web address.
///
/// What is refused here has been counted. For the address that is right: it is the requests that are too many, good
/// or bad. But the account was promised links, so it gets back what did not become one.
async fn shorten<S: Store>(
    State(Shortener { limiter, links }): State<Shortener<S>>,
    account: Option<Extension<Account>>,
    url: Result<String, StringRejection>,
) -> Response {
    let Some(Extension(account)) = account else {
        return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], "who are you?\n")
            .into_response();
    };
    let target = match url {
        Ok(url) => url.parse::<Target>().map_err(|why| (StatusCode::BAD_REQUEST, why).into_response()),
        Err(unreadable) => Err(unreadable.into_response()),
    };
    match target {
        Ok(target) => {
            let path = format!("/{}", links.add(target));
            let body = format!("{path}\n");
            (StatusCode::CREATED, [(header::LOCATION, path)], body).into_response()
        }
        Err(response) => {
            // If this fails, the account has one link less today. That is no reason to answer anything else.
            if let Err(error) = limiter.refund("shorten-account", account.id, 1).await {
                eprintln!("nothing was given back to account {}: {error}", account.id);
            }
            response
        }
    }
}

/// Follows a link. For now: what is permanent is cached, and nobody would be counted any more.
async fn follow<S: Store>(
    State(Shortener { links, .. }): State<Shortener<S>>,
    Path(code): Path<String>,
) -> Result<(StatusCode, [(header::HeaderName, HeaderValue); 1]), (StatusCode, &'static str)> {
    let target = links.find(&code).ok_or((StatusCode::NOT_FOUND, "there is no such link\n"))?;
    Ok((StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, target.into())]))
}

fn app<S: Store>(limiter: Limiter<S>) -> Router {
    // All rules of a request are told in `RateLimit`, one line each; `X-RateLimit-…` tells of the tightest.
    let limit = RateLimitLayer::new(limiter.clone()).ietf_headers(IetfDraft::Draft11);
    Router::new()
        .route("/shorten", post(shorten::<S>).layer(DefaultBodyLimit::max(MAX_LENGTH)))
        .route("/{code}", get(follow::<S>))
        .layer(limit)
        // Added later, so it is further out and comes first: the rules need to know the account.
        .layer(from_fn(accounts::authenticate))
        .with_state(Shortener { limiter, links: Links::default() })
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    match example_support::redis().await? {
        Some(redis) => serve(redis).await,
        None => serve(MemoryStore::new()).await,
    }
}

async fn serve<S: Store>(store: S) -> Result<(), Failure> {
    let app = app(limiter(store)?);
    let listener = example_support::listen().await?;
    // With connect info: without it nobody knows the clients' addresses, and all of them share one budget.
    Ok(axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?)
}

#[cfg(test)]
mod tests;
