//! The store.

use std::error::Error;
use std::time::Duration;

use ratekeeper_redis::{RedisStore, Servers};
use tracing::warn;

use crate::args::Args;

/// How long to wait for Redis before the first request.
const PATIENCE: Duration = Duration::from_secs(2);

/// The servers that `--redis` names.
///
/// # Errors
///
/// Says why the value is invalid, without repeating it: it may contain a password.
pub(crate) fn servers(url: &str) -> Result<Servers, String> {
    Servers::one(url).map_err(|error| {
        let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        format!("--redis is not an address such as redis://127.0.0.1:6379: {reason}")
    })
}

/// The store on these servers.
///
/// A gateway that waits for Redis indefinitely would be down as well. So this waits for a moment only. After
/// that requests are answered by the rules' failure policies, and Redis is used as soon as it is available.
///
/// # Errors
///
/// When the settings are invalid.
pub(crate) async fn redis(servers: Servers, args: &Args) -> Result<RedisStore, Box<dyn Error>> {
    let store =
        RedisStore::builder(servers).prefix(&args.redis_prefix).timeout(args.redis_timeout).build()?;
    if let Err(error) = store.ready(PATIENCE).await {
        // The store itself reports when Redis goes and comes back later.
        warn!(%error, "Redis does not answer, so the gateway begins without it");
    }
    Ok(store)
}
