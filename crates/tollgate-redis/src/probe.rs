//! Checks whether a server decides, by charging a counter that belongs to no caller.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, RedisError, Value};
use tokio::time::Instant;
use tollgate_core::{Key, Quota, RuleName, SECOND, Timestamp};

use crate::call::{Call, Garbled};
use crate::config::Config;
use crate::flight::{is_elsewhere, script};
use crate::name::{Counted, Name};
use crate::request::OwnCharge;

/// Hash tags of slots that a node of a cluster has at present: slots move, and new nodes have none at first.
pub(crate) type Tags = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// The hash tag where there are no slots.
const ANYWHERE: &str = "*";

/// The answer of a server that decides.
#[derive(Debug)]
pub(crate) struct Probed {
    /// The server's time.
    pub(crate) now: Timestamp,
    /// When the question was sent that it has answered.
    pub(crate) sent: Instant,
}

/// Charges a counter. `tags`: for a node of a cluster, where its counters are.
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
        return Ok(Probed { now: charge(connection, config, ANYWHERE).await?, sent });
    };
    for tag in tags() {
        let sent = Instant::now();
        match charge(connection, config, &tag).await {
            Err(error) if is_elsewhere(&error) => {}
            answer => return Ok(Probed { now: answer?, sent }),
        }
    }
    let sent = Instant::now();
    Ok(Probed { now: server_time(connection).await?, sent })
}

/// Charges the counter with this hash tag, and returns the server's time.
async fn charge(
    connection: &mut MultiplexedConnection,
    config: &Config,
    tag: &str,
) -> Result<Timestamp, RedisError> {
    let garbled = |Garbled(detail)| RedisError::from((ErrorKind::UnexpectedReturnType, detail));
    let quota = Quota::fixed_window(u32::MAX, SECOND);
    // No rule has this name: rule names have no spaces.
    let mut name = Name::from_slice(config.prefix.as_bytes());
    name.extend_from_slice(b": probe:{");
    name.extend_from_slice(tag.as_bytes());
    name.push(b'}');
    let rule =
        RuleName::new("probe").map_err(|_| RedisError::from((ErrorKind::Client, "the probe has no name")))?;
    let counter = Counted { hash: 0, rule, key: Key::GLOBAL, slot: 0 };
    let request = vec![OwnCharge { counter, quota, cost: 1 }];
    let mut calls = Call::gather(&[&request], 1, false);
    let Some((_, call)) = calls.pop() else { return Err(garbled(Garbled("nothing was asked"))) };
    let command = script([name].into_iter(), &call.pack(None, None));
    let Value::BulkString(reply) = connection.send_packed_command(&command).await?.extract_error()? else {
        return Err(garbled(Garbled("the script returned something else than bytes")));
    };
    Ok(call.read(&reply).map_err(garbled)?.0)
}

async fn server_time(connection: &mut MultiplexedConnection) -> Result<Timestamp, RedisError> {
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(connection).await?;
    Ok(Timestamp::from_micros(seconds.saturating_mul(1_000_000).saturating_add(micros)))
}
