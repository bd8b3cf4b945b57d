//! Limits for each user, by tier: an authentication layer identifies the caller, a lookup finds the tier.
//!
//! ```text
//! cargo run -p custom-key
//! ```

use std::io;

use anyhow::Context;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use ratekeeper::{ConfigError, Decision, Limiter, MissingKey, Quota, RateLimitLayer, Rule, Tier, key};
use tokio::net::TcpListener;

#[derive(Clone, Copy)]
struct User {
    id: u64,
    name: &'static str,
}

/// The user with this token. Stands for a session store.
fn authenticate(token: &str) -> Option<User> {
    match token {
        "alice-token" => Some(User { id: 1, name: "alice" }),
        "bob-token" => Some(User { id: 2, name: "bob" }),
        "carol-token" => Some(User { id: 3, name: "carol" }),
        _ => None,
    }
}

/// The tier of a user. Stands for a database query.
async fn tier_of(id: u64) -> &'static str {
    tokio::task::yield_now().await;
    match id {
        2 => "pro",
        3 => "unlimited",
        _ => "free",
    }
}

/// Puts the user into the request's extensions, or answers 401.
async fn auth(mut request: Request, next: Next) -> Response {
    let value = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    match value.and_then(|value| value.strip_prefix("Bearer ")).and_then(authenticate) {
        Some(user) => {
            request.extensions_mut().insert(user);
            next.run(request).await
        }
        None => (StatusCode::UNAUTHORIZED, "who are you?\n").into_response(),
    }
}

fn limiter() -> Result<Limiter, ConfigError> {
    let per_user = Rule::new("per-user", Quota::per_minute(3))
        .on_path("/")
        .key(key::extension(|user: &User| user.id))
        .on_missing_key(MissingKey::Deny)
        .tier("free", Quota::per_minute(3))
        .tier("pro", Quota::per_minute(30))
        .tier("unlimited", Tier::Unlimited)
        .tier_by_async(|head| {
            let user = head.extension::<User>().copied();
            async move { Some(tier_of(user?.id).await) }
        });
    Limiter::builder().rule(per_user).build()
}

/// The decision is present for every request that a rule counted, so not in the unlimited tier.
async fn hello(Extension(user): Extension<User>, decision: Option<Extension<Decision>>) -> String {
    let outcome = decision.as_ref().and_then(|decision| decision.outcome("per-user"));
    match outcome {
        Some(outcome) => {
            format!("hello {}, {} of {} left\n", user.name, outcome.remaining(), outcome.limit())
        }
        None => format!("hello {}, as often as you like\n", user.name),
    }
}

/// Peeks at the budget without charging it.
async fn budget(
    State(limiter): State<Limiter>,
    Extension(user): Extension<User>,
) -> Result<String, StatusCode> {
    let tier = tier_of(user.id).await;
    let charge = limiter.charge("per-user", user.id).tier(tier);
    let decision = charge.peek().await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    Ok(match decision.outcome("per-user") {
        Some(outcome) => format!("{tier}: {} of {} left\n", outcome.remaining(), outcome.limit()),
        None => format!("{tier}: no limit\n"),
    })
}

fn app(limiter: Limiter) -> Router {
    Router::new()
        .route("/", get(hello))
        .route("/budget", get(budget))
        .layer(RateLimitLayer::new(limiter.clone()))
        // Added later, so it is further out and runs first: the rule needs to know the user.
        .layer(from_fn(auth))
        .with_state(limiter)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let limiter = limiter()?;
    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener =
        TcpListener::bind(&address).await.with_context(|| format!("cannot listen on LISTEN={address}"))?;
    // The actual address: port 0 picks a free port.
    println!("listening on http://{}", listener.local_addr()?);
    Ok(serve(listener, limiter).await?)
}

async fn serve(listener: TcpListener, limiter: Limiter) -> io::Result<()> {
    axum::serve(listener, app(limiter)).await
}

#[cfg(test)]
mod tests;
