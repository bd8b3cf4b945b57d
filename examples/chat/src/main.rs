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

use axum::Router;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Query, State};
use axum::http::{Method, StatusCode};
use axum::response::{Html, Response};
use axum::routing::get;
use example_support::Failure;
use ratekeeper::{
    ConfigError, FailurePolicy, Limiter, MemoryStore, Quota, RateLimitLayer, Rule, Share, Store,
};
use serde::Deserialize;
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
        .rule(rule("per-connection", PER_CONNECTION, 1).by_hand())
        .rule(rule("per-user", PER_USER, 2).by_hand())
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
async fn main() -> Result<(), Failure> {
    match example_support::redis().await? {
        Some(redis) => serve(redis).await,
        None => serve(MemoryStore::new()).await,
    }
}

async fn serve<S: Store>(store: S) -> Result<(), Failure> {
    let app = app(store)?;
    let listener = example_support::listen().await?;
    // With connect info: without it the clients' addresses are unknown, and all clients share one budget.
    Ok(axum::serve(listener, app.into_make_service_with_connect_info::<SocketAddr>()).await?)
}

#[cfg(test)]
mod tests;
