//! Checks whether a server decides, by charging counters that belong to no caller.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{Key, Quota, RuleName, SECOND, Timestamp};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::batch::call::Call;
use crate::batch::decode::Garbled;
use crate::batch::in_flight::is_elsewhere;
use crate::config::Config;
use crate::name::{Counted, Name};
use crate::request::{Charges, OwnCharge};
use crate::script::{self, CHARGE, PROBE, SETTLE};

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
    /// When the question was sent that it has answered, and how long that took.
    pub(crate) sent: Instant,
    pub(crate) took: Duration,
}

/// Uses everything that requests need. `tags`: for a node of a cluster, where its counters are.
///
/// A node that refuses all writes still says where a slot is, and what time it is. So it is not enough that a
/// node answers: it has to charge a counter in a slot that it has. A slot may have moved since the map was
/// made, or be about to; then another is tried. Only a node that seems to have none is asked for the time.
pub(crate) async fn probe(
    connection: &mut MultiplexedConnection,
    config: &Config,
    tags: Option<&Tags>,
) -> Result<Probed, RedisError> {
    let Some(tags) = tags else { return decides(connection, config, &ANYWHERE).await.map_err(explain) };
    for tag in tags() {
        match decides(connection, config, &[&tag]).await {
            Err(error) if is_elsewhere(&error) => {}
            answer => return answer,
        }
    }
    let sent = Instant::now();
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(connection).await?;
    let now = Timestamp::from_micros(seconds.saturating_mul(1_000_000).saturating_add(micros));
    Ok(Probed { now, sent, took: sent.elapsed() })
}

/// Uses every command with the counter of the first tag, and charges the counters of all tags in one call.
async fn decides(
    connection: &mut MultiplexedConnection,
    config: &Config,
    tags: &[&str],
) -> Result<Probed, RedisError> {
    let names: SmallVec<[Name; 2]> = tags.iter().map(|tag| name(config, tag)).collect();
    let first = names.first().map_or(&[][..], Name::as_slice);
    let _: Value = redis::cmd("EVAL").arg(PROBE).arg(1).arg(first).query_async(connection).await?;
    let rule =
        RuleName::new("probe").map_err(|_| RedisError::from((ErrorKind::Client, "the probe has no name")))?;
    let quota = Quota::fixed_window(u32::MAX, SECOND);
    let charge = |(_, hash)| {
        let counter = Counted { hash, rule, key: Key::GLOBAL, slot: 0 };
        OwnCharge { counter, quota, cost: 1, wait_up_to: None }
    };
    let request: Charges = tags.iter().zip(0..).map(charge).collect();
    let garbled = |Garbled(detail)| RedisError::from((ErrorKind::UnexpectedReturnType, detail));
    let mut calls = Call::gather(&[&request], tags.len(), false);
    let Some((_, call)) = calls.pop() else { return Err(garbled(Garbled("nothing was asked"))) };
    // So that the server knows the script when something is settled.
    let nothing = |with_body| script::command(&SETTLE, with_body, names[..1].iter().cloned(), &[0; 18]);
    loaded(connection, nothing).await?;
    let question = call.pack(None, None);
    let charge = |with_body| script::command(&CHARGE, with_body, names.iter().cloned(), &question);
    let (reply, sent, took) = loaded(connection, charge).await?;
    let Value::BulkString(reply) = reply else {
        return Err(garbled(Garbled("the script returned something else than bytes")));
    };
    Ok(Probed { now: call.read(&reply).map_err(garbled)?.0, sent, took })
}

/// Runs a script, with its body only if the server lacks it: both ways have to be permitted. Returns the
/// reply, when the last attempt was made, and how long that took.
async fn loaded(
    connection: &mut MultiplexedConnection,
    command: impl Fn(bool) -> Cmd,
) -> Result<(Value, Instant, Duration), RedisError> {
    let mut sent = Instant::now();
    let mut reply = connection.send_packed_command(&command(false)).await?;
    if matches!(&reply, Value::ServerError(error) if error.code() == "NOSCRIPT") {
        sent = Instant::now();
        reply = connection.send_packed_command(&command(true)).await?;
    }
    Ok((reply.extract_error()?, sent, sent.elapsed()))
}

/// The name of a counter that no rule has: rule names have no spaces.
fn name(config: &Config, tag: &str) -> Name {
    let mut name = Name::from_slice(config.prefix.as_bytes());
    name.extend_from_slice(b": probe:{");
    name.extend_from_slice(tag.as_bytes());
    name.push(b'}');
    name
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
