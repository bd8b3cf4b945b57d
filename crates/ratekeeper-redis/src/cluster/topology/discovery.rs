//! Asks the nodes which of them has which slots.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{Client, ConnectionInfo, ErrorKind, RedisError};
use tokio::time::{Instant, timeout, timeout_at};

use super::majority::elect;
use super::slot_map::{Address, Map};
use crate::connection::connect::open;

/// How long to wait for other answers after the first one, in addition to the time that one took.
const GRACE: Duration = Duration::from_millis(100);

/// The nodes that are asked, and what is kept from one round to the next.
pub(in crate::cluster) struct Survey {
    /// How long a node may take to answer.
    patience: Duration,
    /// The connections to the nodes that answered last.
    kept: HashMap<Address, MultiplexedConnection>,
    /// Nodes that have not answered yet. They are not asked again until they have, or were given up:
    /// otherwise a node that hangs would find all the questions when it resumes.
    pending: FuturesUnordered<BoxFuture<'static, Answer>>,
    silent: HashSet<Address>,
    /// How many times the nodes were asked.
    round: u64,
}

/// What the nodes report.
#[derive(Debug)]
pub(in crate::cluster) struct Found {
    pub(in crate::cluster) map: Map,
    /// Whether most of the nodes that were asked have reported this.
    pub(in crate::cluster) agreed: bool,
}

struct Answer {
    node: Address,
    round: u64,
    said: Result<(Map, MultiplexedConnection), RedisError>,
}

impl fmt::Debug for Survey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Survey").field("silent", &self.silent).finish_non_exhaustive()
    }
}

impl Survey {
    pub(in crate::cluster) fn new(patience: Duration) -> Self {
        Self {
            patience,
            kept: HashMap::new(),
            pending: FuturesUnordered::new(),
            silent: HashSet::new(),
            round: 0,
        }
    }

    /// Asks all nodes at once. Returns as soon as most report the same, or a moment after the first has
    /// answered: a node that does not answer must not keep the others from being believed.
    pub(in crate::cluster) async fn ask(
        &mut self,
        nodes: &HashMap<Address, ConnectionInfo>,
        believed: &Map,
    ) -> Result<Found, RedisError> {
        self.round += 1;
        let began = Instant::now();
        let (mut until, mut able) = (began + self.patience, nodes.len());
        nodes.iter().for_each(|(node, info)| self.ask_one(node, info));
        let mut error = RedisError::from((ErrorKind::Io, "no node of the cluster answers"));
        let mut answers: Vec<(Address, Map)> = Vec::new();
        while let Ok(Some(answer)) = timeout_at(until, self.pending.next()).await {
            self.silent.remove(&answer.node);
            // It may have been dropped since it was asked.
            let Some(info) = nodes.get(&answer.node) else { continue };
            match answer.said {
                Ok((map, connection)) => {
                    self.kept.insert(answer.node.clone(), connection);
                    if answer.round != self.round {
                        // It was slow, and much may have changed since.
                        self.ask_one(&answer.node, info);
                        continue;
                    }
                    if answers.is_empty() {
                        until = until.min(Instant::now() + began.elapsed() + GRACE);
                    }
                    answers.push((answer.node, map));
                }
                Err(failed) => {
                    self.kept.remove(&answer.node);
                    able = able.saturating_sub(1);
                    error = failed;
                }
            }
            if majority(&answers, able).is_some() {
                break;
            }
        }
        if answers.is_empty() {
            return Err(error);
        }
        let said_by_most = majority(&answers, able).cloned();
        let are_many = 2 * answers.len() > nodes.len();
        let agreed = are_many && said_by_most.is_some();
        let mut map = said_by_most.unwrap_or_else(|| elect(&answers, believed));
        if !are_many {
            // The silent nodes might know of slots that these have forgotten.
            map.fill(believed);
        }
        Ok(Found { map, agreed })
    }

    /// Closes all connections, as no node is asked for a while.
    pub(in crate::cluster) fn rest(&mut self) {
        self.kept.clear();
        self.pending.clear();
        self.silent.clear();
    }

    fn ask_one(&mut self, node: &Address, info: &ConnectionInfo) {
        if !self.silent.insert(node.clone()) {
            return;
        }
        let (node, info) = (node.clone(), info.clone());
        let (kept, patience, round) = (self.kept.get(&node).cloned(), self.patience, self.round);
        let asking = async move {
            let said = timeout(patience, slots(kept, &info, &node, patience)).await.unwrap_or_else(|_| {
                Err(RedisError::from((ErrorKind::Io, "a node of the cluster did not answer in time")))
            });
            Answer { node, round, said }
        };
        self.pending.push(Box::pin(asking));
    }
}

/// What more than half of the nodes that can answer report.
fn majority(answers: &[(Address, Map)], able: usize) -> Option<&Map> {
    if 2 * answers.len() <= able {
        return None;
    }
    let is_said_by_most =
        |map: &&Map| 2 * answers.iter().filter(|(_, other)| other.agrees(map)).count() > able;
    answers.iter().map(|(_, map)| map).find(is_said_by_most)
}

/// Asks one node, over the connection that was kept if it still works.
async fn slots(
    kept: Option<MultiplexedConnection>,
    info: &ConnectionInfo,
    node: &Address,
    patience: Duration,
) -> Result<(Map, MultiplexedConnection), RedisError> {
    let mut command = redis::cmd("CLUSTER");
    command.arg("SLOTS");
    if let Some(mut connection) = kept
        && let Ok(answer) = command.query_async(&mut connection).await
    {
        return Ok((Map::read(&answer, node)?, connection));
    }
    let mut connection = open(&Client::open(info.clone())?, patience).await?;
    let answer = command.query_async(&mut connection).await?;
    Ok((Map::read(&answer, node)?, connection))
}
