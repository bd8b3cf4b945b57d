//! Where is counted.

use std::error::Error;
use std::time::Duration;

use tollgate_redis::{RedisStore, Servers};
use tracing::warn;

use crate::args::Args;

/// How long to wait for Redis before the first request.
const PATIENCE: Duration = Duration::from_secs(2);

/// What `--redis` names, if that makes sense.
///
/// # Errors
///
/// Says why not, without what it is: there may be a password in it.
pub(crate) fn servers(url: &str) -> Result<Servers, String> {
    Servers::one(url).map_err(|error| {
        let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        format!("--redis is not an address such as redis://127.0.0.1:6379: {reason}")
    })
}

/// The store on these servers.
///
/// A gateway that waits for Redis for ever would be down as well. So this waits for a moment; after that requests are
/// answered as the rules say for when the store fails, and Redis is used from when it is there.
///
/// # Errors
///
/// When the settings make no sense.
pub(crate) async fn redis(servers: Servers, args: &Args) -> Result<RedisStore, Box<dyn Error>> {
    let store =
        RedisStore::builder(servers).prefix(&args.redis_prefix).timeout(args.redis_timeout).build()?;
    if let Err(error) = store.ready(PATIENCE).await {
        // That it goes and comes afterwards is told by the store.
        warn!(%error, "Redis does not answer, so the gateway begins without it");
    }
    Ok(store)
}
