//! Finds the node of each counter, even while slots move.

mod redirect;
mod refresh;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use ratekeeper_core::StoreError;
use redis::{Client, ConnectionInfo};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

use self::refresh::refresh_for_ever;
use super::topology::slot_map::{Address, Map};
use crate::config::Config;
use crate::connection::{Breaker, Connection, Redirect, Tags, Target, at};
use crate::denial_cache::DenialCache;
use crate::error::unavailable;
use crate::request::Ask;
use crate::slot::tag_in;

/// The nodes of a cluster.
///
/// Code that needs both locks takes that of the map first.
#[derive(Debug)]
pub(crate) struct Router {
    config: Config,
    denied: Arc<DenialCache>,
    seeds: Vec<Client>,
    map: RwLock<Map>,
    nodes: Mutex<HashMap<Address, Node>>,
    /// Signals that the slot map is to be refreshed.
    wanted: Arc<Notify>,
    /// Settlements of slots that no node has, until one does.
    unrouted: Mutex<Vec<Ask>>,
    /// Bounds how many requests wait for a node to be connected, or for a moving slot to have a known node.
    parked: Arc<Semaphore>,
    /// Where they wait, as callers may be outside any runtime.
    runtime: Handle,
    /// Whether the cluster works as a whole, which means all nodes that have slots.
    breaker: Breaker,
}

/// The connection to a node.
#[derive(Debug)]
struct Node {
    connection: Connection,
    /// When it was last asked about a slot that was moving to it.
    asked: Option<Instant>,
}

impl Drop for Router {
    /// Closes connections that were made after the store had been closed.
    fn drop(&mut self) {
        self.close();
    }
}

impl Router {
    pub(crate) fn start(seeds: Vec<Client>, config: &Config, denied: Arc<DenialCache>) -> Arc<Self> {
        let router = Arc::new(Self {
            config: config.clone(),
            denied,
            seeds,
            map: RwLock::default(),
            nodes: Mutex::default(),
            wanted: Arc::default(),
            unrouted: Mutex::default(),
            parked: Arc::new(Semaphore::new(config.max_waiting.min(Semaphore::MAX_PERMITS))),
            runtime: Handle::current(),
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
        let error = match self.connection(slot) {
            // Requests wait for its connection.
            Some(connection) if connection.breaker().is_untried() => return None,
            Some(connection) => connection.refuses()?,
            None => {
                self.breaker.error().unwrap_or_else(|| unavailable("no node of the cluster has this slot"))
            }
        };
        // Perhaps another node has it by now.
        self.wanted.notify_one();
        Some(error)
    }

    /// Puts something in line at the node that has its counters. It always gets an answer.
    pub(crate) fn put(self: &Arc<Self>, ask: Ask) {
        match self.connection(ask.slot()) {
            Some(connection) if !connection.breaker().is_open() => connection.put(ask),
            // A new node is still being connected to. (It keeps settlements itself.)
            Some(connection) if connection.breaker().is_untried() && ask.settlement().is_none() => {
                self.put_when_possible(Some(connection), ask);
            }
            connection => {
                self.wanted.notify_one();
                match connection {
                    Some(connection) => connection.put(ask),
                    None if ask.settlement().is_some() => self.keep_unrouted(ask),
                    None => ask.fail(&unavailable("no node of the cluster has this slot")),
                }
            }
        }
    }

    /// Keeps a settlement until the slot map is refreshed. If there are too many, it is not made.
    fn keep_unrouted(&self, mut ask: Ask) {
        (ask.attempts, ask.redirects) = (0, 0);
        ask.asking = false;
        ask.expire(&unavailable("no node of the cluster has this slot"));
        let mut unrouted = self.unrouted.lock().unwrap_or_else(PoisonError::into_inner);
        if unrouted.len() < self.config.max_waiting {
            unrouted.push(ask);
        }
    }

    pub(crate) fn close(&self) {
        self.nodes().values().for_each(|node| node.connection.close());
        self.wanted.notify_one();
    }

    fn connection(&self, slot: u16) -> Option<Connection> {
        let map = self.map.read().unwrap_or_else(PoisonError::into_inner);
        let address = map.node(slot)?;
        self.nodes().get(address).map(|node| node.connection.clone())
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<Address, Node>> {
        // Nothing done under the lock panics half-way.
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect_to(self: &Arc<Self>, address: &Address) -> Connection {
        if let Some(node) = self.nodes().get(address) {
            return node.connection.clone();
        }
        let info = at(self.node_info(), address.0.clone(), address.1);
        let (router, host) = (Arc::downgrade(self), address.0.clone());
        let redirect: Redirect = Arc::new(move |ask, error| match (router.upgrade(), error) {
            (Some(router), Some(error)) => router.redirect(ask, error, &host),
            (Some(router), None) => {
                router.wanted.notify_one();
                router.keep_unrouted(ask);
            }
            (None, _) => ask.fail(&unavailable("the store has ended")),
        });
        let (router, own) = (Arc::downgrade(self), address.clone());
        let probed: Tags =
            Arc::new(move || router.upgrade().map_or_else(Vec::new, |router| router.tags(&own)));
        let start = || {
            let (target, denied) = (Target::Node(info), Arc::clone(&self.denied));
            Node {
                connection: Connection::start(target, &self.config, denied, Some(redirect), Some(probed)),
                asked: None,
            }
        };
        self.nodes().entry(address.clone()).or_insert_with(start).connection.clone()
    }

    /// Hash tags of some slots that a node has by the map.
    fn tags(&self, address: &Address) -> Vec<String> {
        let slots = self.map.read().unwrap_or_else(PoisonError::into_inner).some_slots(address);
        slots.into_iter().filter_map(tag_in).collect()
    }

    /// How to reach a node, except for its address.
    fn node_info(&self) -> &ConnectionInfo {
        // There is one: a cluster without nodes cannot be set up.
        self.seeds[0].get_connection_info()
    }
}
