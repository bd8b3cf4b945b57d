//! Checks whether a server decides, by charging counters that belong to no caller.

use std::sync::Arc;

use ratekeeper_core::{Key, Quota, RuleName, SECOND, Timestamp};
use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::time::Instant;

use crate::batch::call::Call;
use crate::batch::decode::Garbled;
use crate::batch::in_flight::is_elsewhere;
use crate::config::Config;
use crate::name::{Counted, Name};
use crate::request::{Charges, OwnCharge};
use crate::script;

/// Hash tags of slots that a node of a cluster has at present: slots move, and new nodes have none at first.
pub(crate) type Tags = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// Hash tags for a server that is not a node of a cluster. They are of different slots: a node refuses to
/// charge both in one call, and so is told apart from a server that can do what is needed.
const ANYWHERE: [&str; 2] = ["*", "+"];

/// The answer of a server that decides.
#[derive(Debug)]
pub(crate) struct Probed {
    /// The server's time.
    pub(crate) now: Timestamp,
    /// When the question was sent that it has answered.
    pub(crate) sent: Instant,
}

/// Charges a counter, or two. `tags`: for a node of a cluster, where its counters are.
///
/// A node that refuses all writes still says where a slot is, and what time it is. So it is not enough that a
/// node answers: it has to charge a counter in a slot that it has. A slot may have moved since the map was
/// made, or be about to; then another is tried. Only a node that seems to have none is asked for the time.
pub(crate) async fn probe(
    connection: &mut MultiplexedConnection,
    config: &Config,
    tags: Option<&Tags>,
) -> Result<Probed, RedisError> {
    let Some(tags) = tags else {
        let sent = Instant::now();
        let now = charge(connection, config, &ANYWHERE).await.map_err(explain)?;
        return Ok(Probed { now, sent });
    };
    for tag in tags() {
        let sent = Instant::now();
        match charge(connection, config, &[&tag]).await {
            Err(error) if is_elsewhere(&error) => {}
            answer => return Ok(Probed { now: answer?, sent }),
        }
    }
    let sent = Instant::now();
    Ok(Probed { now: server_time(connection).await?, sent })
}

/// Charges the counters with these hash tags in one call, and returns the server's time.
async fn charge(
    connection: &mut MultiplexedConnection,
    config: &Config,
    tags: &[&str],
) -> Result<Timestamp, RedisError> {
    let garbled = |Garbled(detail)| RedisError::from((ErrorKind::UnexpectedReturnType, detail));
    let quota = Quota::fixed_window(u32::MAX, SECOND);
    let name = |tag: &&str| {
        // No rule has this name: rule names have no spaces.
        let mut name = Name::from_slice(config.prefix.as_bytes());
        name.extend_from_slice(b": probe:{");
        name.extend_from_slice(tag.as_bytes());
        name.push(b'}');
        name
    };
    let rule =
        RuleName::new("probe").map_err(|_| RedisError::from((ErrorKind::Client, "the probe has no name")))?;
    let counter = |hash| Counted { hash, rule, key: Key::GLOBAL, slot: 0 };
    let own = |(_, hash)| OwnCharge { counter: counter(hash), quota, cost: 1, wait_up_to: None };
    let request: Charges = tags.iter().zip(0..).map(own).collect();
    let mut calls = Call::gather(&[&request], tags.len(), false);
    let Some((_, call)) = calls.pop() else { return Err(garbled(Garbled("nothing was asked"))) };
    let command = script::command(&script::CHARGE, false, tags.iter().map(name), &call.pack(None, None));
    let Value::BulkString(reply) = connection.send_packed_command(&command).await?.extract_error()? else {
        return Err(garbled(Garbled("the script returned something else than bytes")));
    };
    Ok(call.read(&reply).map_err(garbled)?.0)
}

/// Says what is wrong if a server that was set up as a single one is a node of a cluster. It would do for
/// requests that come one by one, but those that come at once share a call, whatever their slots.
fn explain(error: RedisError) -> RedisError {
    use ServerErrorKind::{Ask, ClusterDown, CrossSlot, Moved, TryAgain};
    match error.kind() {
        ErrorKind::Server(CrossSlot | Moved | Ask | TryAgain | ClusterDown) => RedisError::from((
            ErrorKind::InvalidClientConfig,
            "the server is part of a cluster: use Servers::cluster",
            error.to_string(),
        )),
        _ => error,
    }
}

async fn server_time(connection: &mut MultiplexedConnection) -> Result<Timestamp, RedisError> {
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(connection).await?;
    Ok(Timestamp::from_micros(seconds.saturating_mul(1_000_000).saturating_add(micros)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::slot;

    #[test]
    fn the_counters_of_a_single_server_would_be_in_different_slots() {
        let [one, other] = ANYWHERE.map(|tag| slot(format!("ratekeeper: probe:{{{tag}}}").as_bytes()));
        assert_ne!(one, other);
    }
}
