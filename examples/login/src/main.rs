//! A login whose passwords cannot be guessed: only failures count, but all of them do, however many arrive at
//! once.
//!
//! ```text
//! cargo run -p login
//! ```
//!
//! The README shows what to type then. With `REDIS_URL` all processes share the limits.

mod accounts;
mod credentials;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, StatusCode, header};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use ratekeeper::{
    ConfigError, FailurePolicy, HOUR, Key, Limiter, MINUTE, MemoryStore, Quota, RateLimitLayer, Rule, Store,
    key,
};
use ratekeeper_redis::{RedisStore, Servers};
use tokio::net::TcpListener;

use crate::credentials::Credentials;

/// Guessing one account's password: a sliding log, which is exact: never more than five in any minute,
/// whenever it begins. It remembers each attempt, which is cheap for five.
const GUESSES: Quota = Quota::sliding_log(5, MINUTE);

/// Trying one password with many accounts, as attackers with a list of stolen ones do. They fail once with
/// each account and never come near the five. Wide enough for a whole office to mistype behind one address.
const ACCOUNTS: Quota = Quota::sliding_window(100, HOUR);

fn limiter<S: Store>(store: S) -> Result<Limiter, ConfigError> {
    let failures = |name, quota| {
        Rule::new(name, quota)
            .on(Method::POST, "/login")
            // Each login takes one before its password is checked, and is refunded if it did not fail. So it
            // does not help to send many at once.
            .free_when(|response| response.status() != StatusCode::UNAUTHORIZED)
            // If nobody can count, nobody gets in: otherwise whoever can bring Redis down could guess.
            .on_store_failure(FailurePolicy::Deny)
    };
    // Elsewhere an account is an e-mail address. As a secret it is stored as a digest.
    let account = key::extension(|login: &Credentials| Key::secret(login.account.as_str()));
    let rules = [
        // By address and account: by the account alone, anybody could lock its owner out.
        failures("guesses", GUESSES).key((key::peer_ip(), account)),
        failures("accounts", ACCOUNTS).key(key::peer_ip()),
    ];
    Limiter::builder().rules(rules).store(store).build()
}

/// Admits a caller that knows the password. What follows a login, such as a session, is left out.
async fn login(Extension(Credentials { account, password }): Extension<Credentials>) -> Response {
    if accounts::is_password(&account, &password).await {
        format!("welcome, {}\n", account.as_str()).into_response()
    } else {
        // HTTP requires a hint on how to log in. Browsers do not know this scheme, so none prompts for it.
        let scheme = [(header::WWW_AUTHENTICATE, "Form")];
        (StatusCode::UNAUTHORIZED, scheme, "no such account, or not its password\n").into_response()
    }
}

fn app<S: Store>(store: S) -> Result<Router, ConfigError> {
    let login = post(login)
        .route_layer(RateLimitLayer::new(limiter(store)?))
        // Added later, so it is further out and runs first: the rules need to know the account.
        .route_layer(from_fn(credentials::read))
        .route_layer(DefaultBodyLimit::max(credentials::MAX_LENGTH));
    Ok(Router::new().route("/login", login))
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
    let app = app(store)?;
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
