//! The environment variable `REDIS_URL`.

use std::error::Error;
use std::ffi::OsStr;
use std::time::Duration;

use tollgate_redis::{RedisStore, Servers};

use crate::Failure;
use crate::failure::chain;

/// How long a request may wait for Redis. The default of 5 ms is for a network that one has to oneself; a machine that
/// runs all of this, and a compiler besides, should not take a pause of its own for an outage. A Redis that has gone
/// refuses connections, which is noticed at once.
const DEADLINE: Duration = Duration::from_secs(2);

/// How long to wait for Redis before the first request.
const PATIENCE: Duration = Duration::from_secs(2);

/// The store on the server that the environment variable `REDIS_URL` names; `None` without it.
///
/// # Errors
///
/// When it is not the address of a Redis server. That nobody answers there is not an error, see [`redis_or`].
pub async fn redis() -> Result<Option<RedisStore>, Failure> {
    match std::env::var_os("REDIS_URL") {
        Some(url) => store(&url).await.map(Some),
        None => Ok(None),
    }
}

/// The store on the server that the environment variable `REDIS_URL` names, or on this one without it.
///
/// A service that waits for Redis for ever would be down as well. So this waits for a moment; after that the service begins
/// with what its rules say for when the store fails, and Redis is used from when it is there.
///
/// # Errors
///
/// When it is not the address of a Redis server.
pub async fn redis_or(default: &str) -> Result<RedisStore, Failure> {
    store(&std::env::var_os("REDIS_URL").unwrap_or_else(|| default.into())).await
}

async fn store(url: &OsStr) -> Result<RedisStore, Failure> {
    let servers = Servers::one(&*url.to_string_lossy()).map_err(|error| {
        // What it is instead is not repeated: there may be a password in it.
        let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        Failure::new(format!("REDIS_URL is not an address such as redis://127.0.0.1:6379: {reason}"))
    })?;
    let store = RedisStore::builder(servers).timeout(DEADLINE).build()?;
    if let Err(error) = store.ready(PATIENCE).await {
        eprintln!("warning: Redis does not answer, so this process goes on without it: {}", chain(&error));
    }
    Ok(store)
}
