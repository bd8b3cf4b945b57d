//! Servers and stores for the tests.

pub(crate) mod inspect;
pub(crate) mod random;
pub(crate) mod timeline;

use std::sync::LazyLock;
use std::time::Duration;

use ratekeeper_core::{Key, Quota, RuleName};
use ratekeeper_redis::{RedisStore, RedisStoreBuilder, Servers};
use ratekeeper_servers::{Cluster, RedisServer};

/// How long to wait for a store to be ready, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A server for all tests that do not harm it.
pub(crate) fn shared_server() -> &'static RedisServer {
    static SERVER: LazyLock<RedisServer> = LazyLock::new(own_server);
    &SERVER
}

/// A server for one test.
pub(crate) fn own_server() -> RedisServer {
    RedisServer::start().unwrap_or_else(|error| panic!("{error}"))
}

/// A store on a server, with enough time that a busy machine causes no failure.
pub(crate) fn patient(server: &RedisServer) -> RedisStoreBuilder {
    patient_at(&server.url())
}

/// The same for a server that was started elsewhere.
pub(crate) fn patient_at(url: &str) -> RedisStoreBuilder {
    RedisStore::builder(Servers::one(url).expect("the server has an address")).timeout(PATIENCE)
}

/// The store, once it is ready.
pub(crate) async fn ready(builder: RedisStoreBuilder) -> RedisStore {
    let store = builder.build().expect("the store can be made");
    store.ready(PATIENCE).await.expect("the server works");
    store
}

pub(crate) fn rule(name: &str) -> RuleName {
    RuleName::new(name).expect("it is a name")
}

/// One quota of each algorithm.
pub(crate) fn each(limit: u32, period: Duration) -> [Quota; 5] {
    [
        Quota::token_bucket(limit, period),
        Quota::fixed_window(limit, period),
        Quota::sliding_window(limit, period),
        Quota::sliding_log(limit, period),
        Quota::leaky_bucket(limit, period),
    ]
}

/// How often a server has run a command, including its subcommands.
pub(crate) fn calls(server: &RedisServer, command: &str) -> Option<u32> {
    let redis::Value::BulkString(info) = server.command(&["INFO", "commandstats"]).ok()? else { return None };
    let of_command = |line: &str| {
        let (name, numbers) = line.strip_prefix("cmdstat_")?.split_once(':')?;
        let named = name == command || name.strip_prefix(command).is_some_and(|rest| rest.starts_with('|'));
        let calls = numbers.strip_prefix("calls=")?.split(',').next()?;
        if named { calls.parse::<u32>().ok() } else { None }
    };
    Some(std::str::from_utf8(&info).ok()?.lines().filter_map(of_command).sum())
}

/// A key whose counters are on this node of a cluster.
pub(crate) fn key_on(cluster: &Cluster, node: usize) -> Key {
    let lives_there =
        |key: &String| cluster.slot(key).and_then(|slot| cluster.owner(slot)).ok() == Some(node);
    let key = (0..10_000).map(|number| format!("key-{number}")).find(lives_there);
    Key::from(key.expect("each node has some"))
}
