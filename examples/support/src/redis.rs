//! The environment variable `REDIS_URL`.

use std::error::Error;
use std::ffi::OsStr;
use std::time::Duration;

use ratekeeper_redis::{RedisStore, Servers};

use crate::Failure;
use crate::failure::chain;

/// How long a request may wait for Redis. The default of 5 ms is for a dedicated network. On a machine that
/// runs all of this, and a compiler besides, a pause should not be taken for an outage. A Redis that has gone
/// refuses connections, which is noticed immediately.
const DEADLINE: Duration = Duration::from_secs(2);

/// How long to wait for Redis before the first request.
const PATIENCE: Duration = Duration::from_secs(2);

/// The store on the server that the environment variable `REDIS_URL` names; `None` without it.
///
/// # Errors
///
/// When it is not the address of a Redis server. A server that does not answer is not an error, see
/// [`redis_or`].
pub async fn redis() -> Result<Option<RedisStore>, Failure> {
    match std::env::var_os("REDIS_URL") {
        Some(url) => store(&url).await.map(Some),
        None => Ok(None),
    }
}

/// The store on the server that the environment variable `REDIS_URL` names, by default on this one.
///
/// A service that waits for Redis indefinitely would be down as well. So this waits for a moment only. After
/// that the service starts with the failure policies of its rules, and uses Redis as soon as it is available.
///
/// # Errors
///
/// When it is not the address of a Redis server.
pub async fn redis_or(default: &str) -> Result<RedisStore, Failure> {
    store(&std::env::var_os("REDIS_URL").unwrap_or_else(|| default.into())).await
}

async fn store(url: &OsStr) -> Result<RedisStore, Failure> {
    let servers = Servers::one(&*url.to_string_lossy()).map_err(|error| {
        // The value is not repeated: it may contain a password.
        let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        Failure::new(format!("REDIS_URL is not an address such as redis://127.0.0.1:6379: {reason}"))
    })?;
    let store = RedisStore::builder(servers).timeout(DEADLINE).build()?;
    if let Err(error) = store.ready(PATIENCE).await {
        eprintln!("warning: Redis does not answer, so this process goes on without it: {}", chain(&error));
    }
    Ok(store)
}
