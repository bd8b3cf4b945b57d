//! Keeps the slot map up to date.

use std::future::Future;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ratekeeper_core::StoreError;
use redis::{ConnectionAddr, ConnectionInfo, RedisError};
use tokio::time::{Instant, sleep, sleep_until};

use super::{Node, Router};
use crate::cluster::topology::discovery::{Discovered, Kept, discover};
use crate::cluster::topology::schedule::{Health, Schedule};
use crate::cluster::topology::slot_map::{Address, Map};
use crate::connection::{Connection, at};
use crate::error::unavailable;

/// Several reasons to ask within this time count as one.
const BURST: Duration = Duration::from_millis(10);

/// For how long a node without slots is kept after it was last asked about a slot that was moving to it.
const KEPT: Duration = Duration::from_secs(60);

impl Router {
    /// Asks the nodes which of them has which slots: those known now, and those that the store was built
    /// with, in case all that are known now are wrong.
    async fn refresh(self: &Arc<Self>, kept: &mut Kept) -> Result<News, RedisError> {
        let known: Vec<Address> = self.nodes().keys().cloned().collect();
        let known = known.into_iter().map(|(host, port)| at(self.node_info(), host, port));
        let seeds = self.seeds.iter().map(|seed| seed.get_connection_info().clone());
        let address = |info: &ConnectionInfo| match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some((host.clone(), *port))
            }
            _ => None,
        };
        let nodes = known.chain(seeds).filter_map(|info| Some((address(&info)?, info))).collect();
        let believed = self.map.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Discovered { map, agreed } =
            discover(&nodes, kept, &believed, self.config.connect_timeout).await?;
        Ok(News { agreed, is_new: self.take(map) })
    }

    /// Does the same, and keeps the breaker up to date meanwhile, as it takes a while if no node answers.
    async fn refresh_and_tell(self: &Arc<Self>, kept: &mut Kept) -> Result<News, RedisError> {
        let refreshing = self.refresh(kept);
        tokio::pin!(refreshing);
        loop {
            let mut changes = self.changes();
            if !self.is_lost() {
                self.tell(None);
            }
            tokio::select! {
                refreshed = &mut refreshing => return refreshed,
                Some(()) = changes.next() => {}
            }
        }
    }

    /// Uses a map, connects to new nodes, and lets go of those that no longer have anything. Returns whether
    /// anything is new.
    fn take(self: &Arc<Self>, map: Map) -> bool {
        let nodes = map.nodes.clone();
        let is_new = !self.map.read().unwrap_or_else(PoisonError::into_inner).agrees(&map);
        *self.map.write().unwrap_or_else(PoisonError::into_inner) = map;
        if is_new {
            // For instance, a replica has taken over, and until then all nodes may have said that the cluster
            // is down.
            self.nodes().values().for_each(|node| node.connection.retry());
        }
        for node in &nodes {
            self.connect_to(node);
        }
        self.nodes().retain(|address, node| {
            let kept = nodes.contains(address) || node.asked.is_some_and(|asked| asked.elapsed() < KEPT);
            if !kept {
                node.connection.close();
            }
            kept
        });
        let unrouted = std::mem::take(&mut *self.unrouted.lock().unwrap_or_else(PoisonError::into_inner));
        unrouted.into_iter().for_each(|ask| self.put(ask));
        is_new
    }

    /// Sets the breaker to whether the cluster works as a whole, and returns that. A failure to ask the nodes
    /// for their slots does not matter while they work, unless no node is known at all. A new node changes
    /// nothing until it is known whether it works.
    fn tell(&self, failed: Option<RedisError>) -> bool {
        let (trouble, is_known) =
            if self.is_lost() { (failed.map(unavailable), true) } else { self.trouble() };
        match trouble {
            Some(error) => self.breaker.open(error),
            None if is_known => self.breaker.close(),
            None => {}
        }
        !self.breaker.is_open()
    }

    /// Whether no node is known.
    fn is_lost(&self) -> bool {
        self.map.read().unwrap_or_else(PoisonError::into_inner).nodes.is_empty()
    }

    /// What is wrong with the nodes that have slots, if anything is; and whether the state of all of them is
    /// known.
    fn trouble(&self) -> (Option<StoreError>, bool) {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let nodes = self.nodes();
        let nodes =
            nodes.iter().filter(|(address, _)| map.has_slots(address)).map(|(_, node)| &node.connection);
        let (new, tried): (Vec<_>, Vec<_>) = nodes.partition(|connection| connection.breaker().is_untried());
        (tried.into_iter().find_map(Connection::refuses), new.is_empty())
    }

    /// Futures that complete when a node fails, or works again.
    fn changes(&self) -> FuturesUnordered<impl Future<Output = ()> + use<>> {
        let nodes = self.nodes();
        let change = |node: &Node| {
            let mut states = node.connection.breaker().watch();
            let was_open = states.borrow().is_open();
            async move { drop(states.wait_for(|state| state.is_open() != was_open).await) }
        };
        nodes.values().map(change).collect()
    }
}

/// The result of asking.
struct News {
    /// Whether most nodes said the same.
    agreed: bool,
    /// Whether it differs from what was known.
    is_new: bool,
}

/// Opens the breaker when the task has ended, perhaps with its runtime.
struct Ending(Weak<Router>);

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(router) = self.0.upgrade() {
            router.breaker.open(unavailable("the store has ended"));
        }
    }
}

/// Keeps the map up to date for as long as there is a router.
pub(super) async fn refresh_for_ever(router: Weak<Router>) {
    let _ending = Ending(router.clone());
    let Some(strong) = router.upgrade() else { return };
    let (mut schedule, mut kept) = (Schedule::new(strong.config.max_backoff), Kept::new());
    let wanted = Arc::clone(&strong.wanted);
    drop(strong);
    loop {
        let Some(strong) = router.upgrade() else { return };
        let refreshed = strong.refresh_and_tell(&mut kept).await;
        if matches!(refreshed, Ok(News { is_new: true, .. })) {
            schedule.restart();
        }
        // Subscribed before the states are looked at, so that no change falls in between.
        let mut changes = strong.changes();
        let agreed = matches!(refreshed, Ok(News { agreed: true, .. }));
        let health = match strong.tell(refreshed.err()) {
            false => Health::Failing,
            true if agreed => Health::Well,
            true => Health::Unsure,
        };
        drop(strong);
        if health == Health::Well {
            // No node is asked for a while.
            kept.clear();
        }
        let asked = Instant::now();
        let due = sleep_until(asked + schedule.pause(health));
        tokio::pin!(due);
        let mut is_wanted = false;
        loop {
            tokio::select! {
                () = &mut due => break,
                () = wanted.notified(), if !is_wanted => {
                    is_wanted = true;
                    let soon = (asked + schedule.pause_if_wanted()).max(Instant::now() + BURST);
                    if soon < due.deadline() {
                        due.as_mut().reset(soon);
                    }
                }
                // When a node fails or comes back, its slots may have moved, so the nodes are asked.
                Some(()) = changes.next() => {
                    schedule.restart();
                    sleep(BURST).await;
                    break;
                }
            }
        }
    }
}
