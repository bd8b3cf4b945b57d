//! A chat whose messages are limited, for each connection and for each user, with a page to try it.
//!
//! ```text
//! cargo run -p chat
//! ```
//!
//! Then open <http://127.0.0.1:3000/>. With `REDIS_URL` all processes share the limits.

mod connection;
mod event;
mod speaker;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Query, State};
use axum::http::{Method, StatusCode};
use axum::response::{Html, Response};
use axum::routing::get;
use ratekeeper::{
    ConfigError, FailurePolicy, Limiter, MemoryStore, Quota, RateLimitLayer, Rule, Share, Store,
};
use ratekeeper_redis::{RedisStore, Servers};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::sync::broadcast;

use crate::event::Event;
use crate::speaker::Speaker;

/// Joining, for each address. Each connection comes with its own budget, so connections must not be free.
const JOIN: Quota = Quota::per_minute(10);

/// Messages of one connection: three at once, and then one every three seconds. This is against bursts: one
/// user's pasted text must not scroll everybody's window away.
const PER_CONNECTION: Quota = Quota::per_minute(20).burst(3);

/// Messages of one user on all connections together: five at once, and then twelve a minute. This limits how
/// much one user says in the long run, and opening more windows does not help.
const PER_USER: Quota = Quota::per_minute(12).burst(5);

/// The longest message, in bytes. A client that sends a longer one is disconnected before all of it is read.
const MAX_MESSAGE: usize = 4_096;

/// How many events a connection may lag behind before it misses some.
const BACKLOG: usize = 64;

/// What all connections of this process share.
#[derive(Clone)]
struct Room {
    limiter: Limiter,
    events: broadcast::Sender<Event>,
}

/// The limit on joining, which is a request like any other until the connection is upgraded, and the limits
/// on messages, which match no request.
fn limiter<S: Store>(store: S) -> Result<Limiter, ConfigError> {
    // Without Redis each process counts by itself. A connection belongs to this process alone, so it may have
    // its full budget; a user may have connections to another process, for which half is left.
    let rule = |name, quota, processes| {
        Rule::new(name, quota).on_store_failure(FailurePolicy::Local(Share::one_of(processes)))
    };
    Limiter::builder()
        .rule(rule("join", JOIN, 2).on(Method::GET, "/ws"))
        .rule(rule("per-connection", PER_CONNECTION, 1).manual())
        .rule(rule("per-user", PER_USER, 2).manual())
        .store(store)
        .build()
}

#[derive(Deserialize)]
struct Who {
    user: String,
}

/// Joins a user, whose name is not verified. In production, the user is the owner of the session: with a name
/// that anybody can choose, anybody can have or use up its budget.
async fn join(
    State(room): State<Room>,
    Query(Who { user }): Query<Who>,
    upgrade: WebSocketUpgrade,
) -> Result<Response, (StatusCode, &'static str)> {
    let user = user.trim();
    if user.is_empty() || user.chars().count() > 20 || user.contains(char::is_control) {
        return Err((StatusCode::BAD_REQUEST, "a name has 1 to 20 characters"));
    }
    let (events, heard) = (room.events.clone(), room.events.subscribe());
    let speaker = Speaker::new(room.limiter, user.to_owned());
    Ok(upgrade
        .max_message_size(MAX_MESSAGE)
        .on_upgrade(|socket| connection::run(socket, speaker, events, heard)))
}

fn app<S: Store>(store: S) -> Result<Router, ConfigError> {
    let limiter = limiter(store)?;
    let room = Room { limiter: limiter.clone(), events: broadcast::channel(BACKLOG).0 };
    Ok(Router::new()
        .route("/", get(Html(include_str!("page.html"))))
        .route("/ws", get(join))
        .layer(RateLimitLayer::new(limiter))
        .with_state(room))
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
