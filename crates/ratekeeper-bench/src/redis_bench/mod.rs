//! Decisions in Redis, compared with what else one could ask of it.
//!
//! In each round all contestants are measured in turn, against the same server where they need one, and the
//! ratios are taken within the round. The median over the rounds is shown. The server itself reports how much
//! of its time they took (`INFO cpu`).

#![allow(missing_debug_implementations, reason = "connections and the limiters of others have none")]

mod host;
mod load;
mod peers;
mod subject;
mod table;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{Quota, RuleName};
use ratekeeper_redis::{RedisStore, RedisStoreBuilder, Servers};
use ratekeeper_servers::RedisServer;
use redis::aio::MultiplexedConnection;

pub use self::host::{Host, Throttlecrab};
pub use self::load::{Askers, Load, Measured, Paced, admitted_at_once, latency, measure, paced};
pub use self::peers::{Limitador, rate_tier};
pub use self::subject::Subject;
pub use self::table::{Contest, Contestant};

/// How many keys there are.
pub const KEYS: usize = 100_000;

/// Runs on the number of threads that `WORKERS` sets, one by default: on two cores, the server has the other.
///
/// # Panics
///
/// If no runtime can be built.
pub fn run<F: Future>(future: F) -> F::Output {
    let threads = std::env::var("WORKERS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    runtime.expect("a runtime can be made").block_on(future)
}

/// The keys of all callers.
#[must_use]
pub fn many() -> Arc<Vec<String>> {
    Arc::new((0..KEYS).map(|i| format!("user:{i:08}")).collect())
}

/// The key of a single caller.
#[must_use]
pub fn one() -> Arc<Vec<String>> {
    Arc::new(vec!["user:00000000".to_owned()])
}

/// A quota of which there is always some left, even in the time that a slow contestant takes.
#[must_use]
pub const fn plenty() -> Quota {
    Quota::per_hour(100).burst(100_000_000)
}

/// A connection with default settings.
///
/// # Panics
///
/// If the server does not answer.
pub async fn connect(url: &str) -> MultiplexedConnection {
    let client = redis::Client::open(url).expect("the server has an address");
    client.get_multiplexed_async_connection().await.expect("the server answers")
}

/// Our store, with longer deadlines than by default: on a machine that does other things as well, requests
/// wait.
///
/// # Panics
///
/// If the server does not work.
pub async fn store(server: &RedisServer) -> RedisStore {
    store_as(server, |builder| builder).await
}

/// The same with other settings.
///
/// # Panics
///
/// If the server does not work.
pub async fn store_as(
    server: &RedisServer,
    make: impl FnOnce(RedisStoreBuilder) -> RedisStoreBuilder,
) -> RedisStore {
    let servers = Servers::one(server.url()).expect("the server has an address");
    let store = make(RedisStore::builder(servers).timeout(Duration::from_secs(5))).build();
    let store = store.expect("a store can be made");
    store.ready(Duration::from_secs(5)).await.expect("the server works");
    store
}

/// The name of a rule.
///
/// # Panics
///
/// If the name is not allowed.
#[must_use]
pub fn rule(name: &str) -> RuleName {
    RuleName::new(name).expect("it is a name")
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
