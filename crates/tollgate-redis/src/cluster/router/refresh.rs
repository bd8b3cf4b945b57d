//! Keeps what is known of who has which slots right.

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{ConnectionAddr, ConnectionInfo, RedisError};
use tokio::sync::watch;
use tokio::time::sleep;
use tollgate_core::StoreError;

use super::Router;
use crate::breaker::BreakerState;
use crate::cluster::map::{Address, Map};
use crate::cluster::survey::Survey;
use crate::connect::at;
use crate::link::unavailable;

/// How often the nodes are asked who has which slots, though nothing seems wrong.
const REFRESH: Duration = Duration::from_secs(30);
/// The same while a node fails, or they do not agree.
const REFRESH_IN_TROUBLE: Duration = Duration::from_millis(100);

/// For how long a node without slots is kept after it was last asked about one that is on its way to it.
const KEPT: Duration = Duration::from_secs(60);

impl Router {
    /// Asks the nodes who has which slots: those that are known, and those that were at first, in case all that are known now are
    /// wrong. Says whether they agree.
    async fn refresh(self: &Arc<Self>, survey: &mut Survey) -> Result<bool, RedisError> {
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
        self.take(found.map);
        Ok(found.agreed)
    }

    /// Uses a new map, connects to nodes that are new, and lets go of those that have nothing any more.
    fn take(self: &Arc<Self>, map: Map) {
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
    }

    /// What is wrong with the nodes that have slots, if anything is. That they could not be asked for their slots is of no concern
    /// while they work, unless it is not known at all who they are.
    fn trouble(&self, failed: Option<RedisError>) -> Option<StoreError> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        if map.nodes.is_empty() {
            return failed.map(unavailable);
        }
        let links = self.links();
        links.iter().filter(|(address, _)| map.has_slots(address)).find_map(|(_, node)| node.link.refuses())
    }
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
    let Some(mut survey) = router.upgrade().map(|strong| Survey::new(strong.config.connect_timeout)) else {
        return;
    };
    loop {
        let Some(strong) = router.upgrade() else { return };
        let refreshed = strong.refresh(&mut survey).await;
        // Before they are looked at, so that no change falls in between.
        let mut changes: Vec<watch::Receiver<BreakerState>> =
            strong.links().values().map(|node| node.link.breaker().watch()).collect();
        let in_doubt = !matches!(refreshed, Ok(true));
        let trouble = strong.trouble(refreshed.err());
        let pause = if trouble.is_some() || in_doubt {
            REFRESH_IN_TROUBLE
        } else {
            survey.rest();
            REFRESH
        };
        match trouble {
            Some(error) => strong.breaker.open(error),
            None => strong.breaker.close(),
        }
        // A node that fails or comes back is a reason to ask who has its slots now.
        let mut changed: FuturesUnordered<_> = changes.iter_mut().map(watch::Receiver::changed).collect();
        let wanted = strong.wanted.notified();
        tokio::select! {
            () = sleep(pause) => {}
            () = wanted => {}
            Some(_) = changed.next() => {}
        }
        // A burst of reasons is one reason.
        sleep(Duration::from_millis(10)).await;
    }
}
