//! Finds the node of each counter, also while they move.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{Client, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError, ServerErrorKind};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout_at};
use tollgate_core::StoreError;

use super::map::{Address, Map};
use super::slot::tag_in;
use super::survey::Survey;
use crate::breaker::{Breaker, BreakerState};
use crate::config::Config;
use crate::connect::{Target, at};
use crate::denied::Denied;
use crate::link::{Link, Redirect, unavailable};
use crate::request::Ask;

/// How often a request may be sent elsewhere.
const REDIRECTS: u8 = 8;
/// How long a request waits for a slot that is between two nodes.
const BETWEEN: Duration = Duration::from_millis(1);
/// How often the nodes are asked who has which slots, though nothing seems wrong.
const REFRESH: Duration = Duration::from_secs(30);
/// The same while a node fails, or they do not agree.
const REFRESH_IN_TROUBLE: Duration = Duration::from_millis(100);

/// For how long a node without slots is kept after it was last asked about one that is on its way to it.
const KEPT: Duration = Duration::from_secs(60);

/// The nodes of a cluster.
///
/// Whoever wants both locks takes that of the map first.
#[derive(Debug)]
pub(crate) struct Router {
    config: Config,
    denied: Arc<Denied>,
    seeds: Vec<Client>,
    map: RwLock<Map>,
    links: Mutex<HashMap<Address, Node>>,
    wanted: Notify,
    /// Settlements of slots that no node has, until one does.
    homeless: Mutex<Vec<Ask>>,
    /// Places for requests of slots that are on their way, to wait in until their node is connected or known.
    between: Arc<Semaphore>,
    /// Whether the cluster works as a whole: all nodes that have slots do.
    breaker: Breaker,
}

/// The connection to a node.
#[derive(Debug)]
struct Node {
    link: Link,
    /// When it was last asked about a slot that was on its way to it.
    asked: Option<Instant>,
}

impl Drop for Router {
    /// What was connected to after the store had been closed is closed here.
    fn drop(&mut self) {
        self.close();
    }
}

impl Router {
    pub(crate) fn start(seeds: Vec<Client>, config: &Config, denied: Arc<Denied>) -> Arc<Self> {
        let router = Arc::new(Self {
            config: config.clone(),
            denied,
            seeds,
            map: RwLock::default(),
            links: Mutex::default(),
            wanted: Notify::new(),
            homeless: Mutex::default(),
            between: Arc::new(Semaphore::new(config.max_waiting.min(Semaphore::MAX_PERMITS))),
            breaker: Breaker::of_several(),
        });
        tokio::spawn(refresh_for_ever(Arc::downgrade(&router)));
        router
    }

    pub(crate) fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// The error to answer with instead of asking about a counter.
    pub(crate) fn refuses(&self, slot: u16) -> Option<StoreError> {
        match self.link(slot) {
            Some(link) => link.refuses(),
            None => Some(
                self.breaker.error().unwrap_or_else(|| unavailable("no node of the cluster has this slot")),
            ),
        }
    }

    /// Puts something in line at the node that has its counters. It is answered in any case.
    pub(crate) fn put(&self, ask: Ask) {
        match self.link(ask.slot()) {
            Some(link) => link.put(ask),
            None if ask.settlement().is_some() => self.shelter(ask),
            None => ask.fail(&unavailable("no node of the cluster has this slot")),
        }
    }

    /// Keeps a settlement until it is known anew who has which slots. If there are too many, it is not done.
    fn shelter(&self, mut ask: Ask) {
        (ask.attempts, ask.redirects) = (0, 0);
        ask.asking = false;
        ask.expire(&unavailable("no node of the cluster has this slot"));
        let mut homeless = self.homeless.lock().unwrap_or_else(PoisonError::into_inner);
        if homeless.len() < self.config.max_waiting {
            homeless.push(ask);
        }
    }

    pub(crate) fn close(&self) {
        self.links().values().for_each(|node| node.link.close());
        self.wanted.notify_one();
    }

    fn link(&self, slot: u16) -> Option<Link> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let address = map.node(slot)?;
        self.links().get(address).map(|node| node.link.clone())
    }

    fn links(&self) -> MutexGuard<'_, HashMap<Address, Node>> {
        // Nothing that is done under the lock panics half-way.
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request to where a node says that it belongs.
    fn redirect(self: &Arc<Self>, mut ask: Ask, error: &RedisError) {
        ask.redirects += 1;
        let settles = ask.settlement().is_some();
        if ask.redirects > REDIRECTS && settles {
            self.wanted.notify_one();
            return self.shelter(ask);
        }
        if ask.redirects > REDIRECTS || (ask.deadline <= Instant::now() && !settles) {
            return ask.fail(&unavailable(error.clone()));
        }
        self.wanted.notify_one();
        let target = error.redirect_node().and_then(|(address, slot)| Some((parse(address)?, slot)));
        let link = match (error.kind(), target) {
            (ErrorKind::Server(ServerErrorKind::Moved), Some((address, slot))) => {
                ask.asking = false;
                self.map.write().unwrap_or_else(PoisonError::into_inner).set(slot, &address);
                Some(self.link_to(&address))
            }
            // Some of its counters are here and some there, and so it will be until the slot has moved. (Redis before 7 says of
            // several that all are there as soon as one of them is not here.)
            (ErrorKind::Server(ServerErrorKind::Ask | ServerErrorKind::TryAgain), _)
                if ask.is_divisible() =>
            {
                return ask.divide();
            }
            // It may be the counters of others that it was asked with. From now on it goes alone.
            (ErrorKind::Server(ServerErrorKind::Ask | ServerErrorKind::TryAgain), _)
                if ask.redirects == 1 =>
            {
                ask.asking = false;
                self.link(ask.slot())
            }
            (ErrorKind::Server(ServerErrorKind::Ask), Some((address, _))) => {
                ask.asking = true;
                let link = self.link_to(&address);
                if let Some(node) = self.links().get_mut(&address) {
                    node.asked = Some(Instant::now());
                }
                Some(link)
            }
            // The slot is between two nodes, or whoever has it is not known by its address: a moment later it may be.
            _ => None,
        };
        match link {
            // (A settlement is kept there.)
            Some(link) if link.refuses().is_none() || settles => link.put(ask),
            link => self.put_later(link, ask),
        }
    }

    /// Puts something in line when it can be, if it is not one of too many.
    fn put_later(self: &Arc<Self>, link: Option<Link>, ask: Ask) {
        match Arc::clone(&self.between).try_acquire_owned() {
            Ok(place) => {
                let router = Arc::clone(self);
                tokio::spawn(async move {
                    router.wait_between(link, ask).await;
                    drop(place);
                });
            }
            Err(_) if ask.settlement().is_some() => self.shelter(ask),
            Err(_) => ask.fail(&unavailable("too many requests wait for slots that are on their way")),
        }
    }

    /// Waits for a node that is new to be connected, or for a slot to have one, as long as there is time.
    async fn wait_between(&self, link: Option<Link>, mut ask: Ask) {
        let Some(link) = link else {
            sleep(BETWEEN).await;
            ask.asking = false;
            return self.put(ask);
        };
        let mut states = link.breaker().watch();
        // It answers in any case, if it is too late by saying so.
        drop(timeout_at(ask.deadline, states.wait_for(|state| !state.is_open())).await);
        link.put(ask);
    }

    fn link_to(self: &Arc<Self>, address: &Address) -> Link {
        if let Some(node) = self.links().get(address) {
            return node.link.clone();
        }
        // Without any lock, as it takes a while. A node without slots has no counter to charge; it is asked for its time.
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner).clone();
        let has_slots = map.has_slots(address);
        let probe = if has_slots { tag_in(|slot| map.node(slot) == Some(address)) } else { None };
        let info = at(self.node_info(), address.0.clone(), address.1);
        let config = Config { probe: probe.unwrap_or_default(), ..self.config.clone() };
        let router = Arc::downgrade(self);
        let redirect: Redirect = Arc::new(move |ask, error| match (router.upgrade(), error) {
            (Some(router), Some(error)) => router.redirect(ask, error),
            (Some(router), None) => {
                router.wanted.notify_one();
                router.shelter(ask);
            }
            (None, _) => ask.fail(&unavailable("the store has ended")),
        });
        let start = || Node {
            link: Link::start(Target::Node(info), &config, Arc::clone(&self.denied), Some(redirect)),
            asked: None,
        };
        self.links().entry(address.clone()).or_insert_with(start).link.clone()
    }

    /// How to reach a node: all but the address.
    fn node_info(&self) -> &ConnectionInfo {
        // There is one: a cluster without nodes cannot be set up.
        self.seeds[0].get_connection_info()
    }

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

    /// What is wrong with the nodes that have slots, if anything is.
    fn trouble(&self) -> Option<StoreError> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
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
async fn refresh_for_ever(router: Weak<Router>) {
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
        let trouble = refreshed.err().map(unavailable).or_else(|| strong.trouble());
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

/// The address of a node as an error has it: `host:port`. Nothing if the node does not know the host: then whoever is
/// asked next about all slots says where it is.
fn parse(address: &str) -> Option<Address> {
    let (host, port) = address.rsplit_once(':').filter(|(host, _)| !host.is_empty() && *host != "?")?;
    Some((host.to_owned(), port.parse().ok()?))
}
