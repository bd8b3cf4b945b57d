//! Asks the nodes which of them has which slots.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{Client, ConnectionInfo, ErrorKind, RedisError};
use tokio::time::{Instant, timeout_at};

use super::slot_map::{Address, Map};
use crate::connection::open;

/// How long to wait for other answers after the first one, in addition to the time that one took.
const GRACE: Duration = Duration::from_millis(100);

/// What the nodes report.
#[derive(Debug)]
pub(in crate::cluster) struct Discovered {
    pub(in crate::cluster) map: Map,
    /// Whether most of the nodes that were asked have reported this.
    pub(in crate::cluster) agreed: bool,
}

/// The connections to the nodes that answered last.
pub(in crate::cluster) type Kept = HashMap<Address, MultiplexedConnection>;

/// Asks all nodes at once. Returns as soon as most report the same, or a moment after the first has answered:
/// a node that does not answer must not keep the others from being believed.
pub(in crate::cluster) async fn discover(
    nodes: &HashMap<Address, ConnectionInfo>,
    kept: &mut Kept,
    believed: &Map,
    timeout: Duration,
) -> Result<Discovered, RedisError> {
    let began = Instant::now();
    let (mut until, mut able) = (began + timeout, nodes.len());
    let ask = |(node, info)| slots(kept.remove(node), info, node, timeout);
    let mut pending: FuturesUnordered<_> = nodes.iter().map(ask).collect();
    let mut error = RedisError::from((ErrorKind::Io, "no node of the cluster answers"));
    let mut answers = Vec::new();
    while let Ok(Some(answer)) = timeout_at(until, pending.next()).await {
        match answer {
            Ok((node, map, connection)) => {
                kept.insert(node, connection);
                if answers.is_empty() {
                    until = until.min(Instant::now() + began.elapsed() + GRACE);
                }
                answers.push(map);
            }
            Err(failed) => {
                able -= 1;
                error = failed;
            }
        }
        if best(&answers, believed).is_some_and(|(_, votes)| 2 * votes > able) {
            break;
        }
    }
    let Some((map, votes)) = best(&answers, believed) else { return Err(error) };
    let (mut map, are_many) = (map.clone(), 2 * answers.len() > nodes.len());
    if !are_many {
        // The silent nodes might know of slots that these have forgotten.
        map.fill(believed);
    }
    Ok(Discovered { map, agreed: are_many && 2 * votes > able })
}

/// The map that most nodes report, and how many do. Of several, the one that knows of more slots: a node that
/// has forgotten the others reports only itself. And then the one that is believed so far. What the map has
/// wrong, the nodes correct one by one, with `MOVED`.
fn best<'a>(answers: &'a [Map], believed: &Map) -> Option<(&'a Map, usize)> {
    let votes = |map: &Map| answers.iter().filter(|other| other.agrees(map)).count();
    let weight = |map: &Map| (votes(map), map.slots.iter().flatten().count(), map.agrees(believed));
    let best = answers.iter().max_by_key(|map| weight(map))?;
    Some((best, votes(best)))
}

/// Asks one node, over the connection that was kept if it still works.
async fn slots(
    kept: Option<MultiplexedConnection>,
    info: &ConnectionInfo,
    node: &Address,
    timeout: Duration,
) -> Result<(Address, Map, MultiplexedConnection), RedisError> {
    let command = redis::cmd("CLUSTER").arg("SLOTS").to_owned();
    if let Some(mut connection) = kept
        && let Ok(answer) = command.query_async(&mut connection).await
    {
        return Ok((node.clone(), Map::read(&answer, node)?, connection));
    }
    let mut connection = open(&Client::open(info.clone())?, timeout).await?;
    let answer = command.query_async(&mut connection).await?;
    Ok((node.clone(), Map::read(&answer, node)?, connection))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(ranges: &[(std::ops::RangeInclusive<u16>, u16)]) -> Map {
        let mut map = Map { nodes: Vec::new(), slots: vec![None; 16_384] };
        for (range, port) in ranges {
            range.clone().for_each(|slot| map.set(slot, &("host".to_owned(), *port)));
        }
        map
    }

    #[test]
    fn most_are_believed_then_who_knows_more_then_what_was() {
        let (was, is) = (map(&[(0..=99, 1), (100..=199, 2)]), map(&[(0..=99, 3), (100..=199, 2)]));
        let believed = |answers: &[Map], before: &Map| best(answers, before).map(|(map, _)| map.clone());
        assert!(believed(&[was.clone(), is.clone(), is.clone()], &was).unwrap().agrees(&is));
        let forgetful = map(&[(0..=99, 1)]);
        for answers in [[forgetful.clone(), is.clone()], [is.clone(), forgetful.clone()]] {
            assert!(believed(&answers, &forgetful).unwrap().agrees(&is));
        }
        for before in [&was, &is] {
            assert!(believed(&[was.clone(), is.clone()], before).unwrap().agrees(before));
        }
        assert!(best(&[], &was).is_none());
    }
}
