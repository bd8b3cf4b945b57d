//! Failures of Redis, and what a request sees of them.
//!
//! Each test has its own server, and harms it. Whatever happens, no request waits for longer than the
//! deadline, nothing is counted that was not admitted, errors are distinct from denials, and the service
//! recovers by itself.

use std::time::Duration;

use ratekeeper_core::StoreError;
use ratekeeper_redis::{BreakerState, RedisStore, RedisStoreBuilder, Servers};
use ratekeeper_servers::RedisServer;
use tokio::sync::watch;

use crate::support::PATIENCE;

mod client;
mod clocks;
mod garbage;
mod idle;
mod load;
mod network;
mod permissions;
mod refusing;
mod relapsing;
mod scripts;
mod settling;
mod slow;
mod stopped;
mod tally;

pub(crate) use self::load::{Load, counted};

/// The deadline of a decision.
const DEADLINE: Duration = Duration::from_millis(100);
/// How much later it may come, on a busy machine.
const MARGIN: Duration = Duration::from_millis(250);

/// A server to be harmed.
fn server() -> RedisServer {
    RedisServer::start().unwrap_or_else(|error| panic!("{error}"))
}

/// A store that is quick to give up and to recover.
fn hasty(url: &str) -> RedisStoreBuilder {
    let servers = Servers::one(url).expect("the server has an address");
    RedisStore::builder(servers)
        .timeout(DEADLINE)
        .connect_timeout(Duration::from_secs(1))
        .max_backoff(Duration::from_millis(50))
}

/// The same, ready for use.
async fn ready(url: &str) -> RedisStore {
    let store = hasty(url).build().expect("the store can be made");
    store.ready(PATIENCE).await.expect("the server works");
    store
}

/// Waits until the breaker is open, and returns why.
async fn opened(store: &RedisStore) -> StoreError {
    opened_because(store, "").await
}

/// Waits until the breaker is open for a reason with this word in it.
async fn opened_because(store: &RedisStore, word: &str) -> StoreError {
    let mut states = store.watch_breaker();
    let is_it = |state: &BreakerState| match state {
        BreakerState::Open { error, .. } => story(error).to_lowercase().contains(&word.to_lowercase()),
        _ => false,
    };
    let open = tokio::time::timeout(PATIENCE, states.wait_for(is_it)).await;
    match &*open.unwrap_or_else(|_| panic!("{word:?}: {store:?}")).expect("the store is there") {
        BreakerState::Open { error, .. } => error.clone(),
        other => panic!("{other:?}"),
    }
}

/// The breaker's changes from now on.
fn watched(store: &RedisStore) -> watch::Receiver<BreakerState> {
    let mut breaker = store.watch_breaker();
    breaker.mark_unchanged();
    breaker
}

/// Waits until the breaker has opened since, even if it has already closed again.
async fn changed(mut breaker: watch::Receiver<BreakerState>) {
    let changed = tokio::time::timeout(PATIENCE, breaker.changed()).await;
    changed.expect("it opens").expect("the store is there");
}

/// The text of an error and of all its causes.
pub(crate) fn story(error: &StoreError) -> String {
    let mut story = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        story = format!("{story}: {error}");
        cause = error.source();
    }
    story
}
