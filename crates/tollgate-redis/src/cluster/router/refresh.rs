//! Keeps what is known of who has which slots right.

use std::future::Future;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{ConnectionAddr, ConnectionInfo, RedisError};
use tokio::time::{Instant, sleep, sleep_until};
use tollgate_core::StoreError;

use super::rhythm::{Mood, Rhythm};
use super::{Node, Router};
use crate::cluster::map::{Address, Map};
use crate::cluster::survey::Survey;
use crate::connect::at;
use crate::link::{Link, unavailable};

/// A burst of reasons to ask is one reason.
const BURST: Duration = Duration::from_millis(10);

/// For how long a node without slots is kept after it was last asked about one that is on its way to it.
const KEPT: Duration = Duration::from_secs(60);

impl Router {
    /// Asks the nodes who has which slots: those that are known, and those that were at first, in case all that are known now are
    /// wrong.
    async fn refresh(self: &Arc<Self>, survey: &mut Survey) -> Result<News, RedisError> {
        let known: Vec<Address> = self.links().keys().cloned().collect();
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
        let found = survey.ask(&nodes, &believed).await?;
        Ok(News { agreed: found.agreed, is_new: self.take(found.map) })
    }

    /// The same. If nobody answers it takes a while, and what becomes of the nodes meanwhile is told.
    async fn refresh_and_tell(self: &Arc<Self>, survey: &mut Survey) -> Result<News, RedisError> {
        let refreshing = self.refresh(survey);
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

    /// Uses a map, connects to nodes that are new, and lets go of those that have nothing any more. Says whether anything is new.
    fn take(self: &Arc<Self>, map: Map) -> bool {
        let nodes = map.nodes.clone();
        let is_new = !self.map.read().unwrap_or_else(PoisonError::into_inner).agrees(&map);
        *self.map.write().unwrap_or_else(PoisonError::into_inner) = map;
        if is_new {
            // As when a replica has taken over: until then, all nodes may have said that the cluster is down.
            self.links().values().for_each(|node| node.link.retry());
        }
        for node in &nodes {
            self.link_to(node);
        }
        self.links().retain(|address, node| {
            let kept = nodes.contains(address) || node.asked.is_some_and(|asked| asked.elapsed() < KEPT);
            if !kept {
                node.link.close();
            }
            kept
        });
        let homeless = std::mem::take(&mut *self.homeless.lock().unwrap_or_else(PoisonError::into_inner));
        homeless.into_iter().for_each(|ask| self.put(ask));
        is_new
    }

    /// Tells whether the cluster works as a whole, and says so. That the nodes could not be asked for their slots is of no concern
    /// while they work, unless it is not known at all who they are. One that is new does not change anything until it is known
    /// whether it works.
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

    /// Whether nothing is known of the nodes.
    fn is_lost(&self) -> bool {
        self.map.read().unwrap_or_else(PoisonError::into_inner).nodes.is_empty()
    }

    /// What is wrong with the nodes that have slots, if anything is; and whether it is known of all of them.
    fn trouble(&self) -> (Option<StoreError>, bool) {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let links = self.links();
        let links = links.iter().filter(|(address, _)| map.has_slots(address)).map(|(_, node)| &node.link);
        let (new, tried): (Vec<_>, Vec<_>) = links.partition(|link| link.breaker().is_untried());
        (tried.into_iter().find_map(Link::refuses), new.is_empty())
    }

    /// What comes when one of the nodes fails, or works again.
    fn changes(&self) -> FuturesUnordered<impl Future<Output = ()> + use<>> {
        let links = self.links();
        let change = |node: &Node| {
            let mut states = node.link.breaker().watch();
            let was_open = states.borrow().is_open();
            async move { drop(states.wait_for(|state| state.is_open() != was_open).await) }
        };
        links.values().map(change).collect()
    }
}

/// What came of asking.
struct News {
    /// Whether most nodes said the same.
    agreed: bool,
    /// Whether it is something else than was known.
    is_new: bool,
}

/// Says that the store has ended when the task has, with its runtime perhaps.
struct Ending(Weak<Router>);

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(router) = self.0.upgrade() {
            router.breaker.open(unavailable("the store has ended"));
        }
    }
}

/// Keeps the map right for as long as there is a router.
pub(super) async fn refresh_for_ever(router: Weak<Router>) {
    let _ending = Ending(router.clone());
    let Some(strong) = router.upgrade() else { return };
    let (mut survey, mut rhythm) =
        (Survey::new(strong.config.connect_timeout), Rhythm::new(strong.config.longest_pause));
    let wanted = Arc::clone(&strong.wanted);
    drop(strong);
    loop {
        let Some(strong) = router.upgrade() else { return };
        let refreshed = strong.refresh_and_tell(&mut survey).await;
        if matches!(refreshed, Ok(News { is_new: true, .. })) {
            rhythm.restart();
        }
        // Before they are looked at, so that none falls in between.
        let mut changes = strong.changes();
        let agreed = matches!(refreshed, Ok(News { agreed: true, .. }));
        let mood = match strong.tell(refreshed.err()) {
            false => Mood::Trouble,
            true if agreed => Mood::Calm,
            true => Mood::Doubt,
        };
        drop(strong);
        if mood == Mood::Calm {
            survey.rest();
        }
        let asked = Instant::now();
        let due = sleep_until(asked + rhythm.pause(mood));
        tokio::pin!(due);
        let mut is_wanted = false;
        loop {
            tokio::select! {
                () = &mut due => break,
                () = wanted.notified(), if !is_wanted => {
                    is_wanted = true;
                    let soon = (asked + rhythm.pause_if_wanted()).max(Instant::now() + BURST);
                    if soon < due.deadline() {
                        due.as_mut().reset(soon);
                    }
                }
                // A node that fails or comes back is a reason to ask who has its slots now.
                Some(()) = changes.next() => {
                    rhythm.restart();
                    sleep(BURST).await;
                    break;
                }
            }
        }
    }
}
