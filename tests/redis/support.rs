//! Servers and stores for the tests.

use std::sync::LazyLock;
use std::time::Duration;

use tollgate_redis::{RedisStore, RedisStoreBuilder, Servers};
use tollgate_servers::RedisServer;

/// How long to wait for a store to be ready, on a machine that is busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A server for all tests that do no harm to it.
pub(crate) fn shared_server() -> &'static RedisServer {
    static SERVER: LazyLock<RedisServer> =
        LazyLock::new(|| RedisServer::start().unwrap_or_else(|error| panic!("{error}")));
    &SERVER
}

/// A store on a server, with time enough that a busy machine is no failure.
pub(crate) fn patient(server: &RedisServer) -> RedisStoreBuilder {
    let servers = Servers::one(server.url()).expect("the server has an address");
    RedisStore::builder(servers).timeout(PATIENCE)
}

/// How many commands of a name, with all that it has below it, a server has run.
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
