//! A Redis Cluster.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use self::view::View;
use crate::{
    Builder, Error, RedisServer, Result,
    replication::{follows, offset},
    wait,
};

mod form;
mod reshard;
mod view;

/// How many slots keys are divided into.
const SLOTS: u16 = 16_384;

/// After how many milliseconds a silent node is considered dead. With less, a busy machine's nodes would be,
/// too.
const NODE_TIMEOUT: u32 = 1_000;

/// A Redis Cluster, all slots of which are assigned in equal shares to its masters.
///
/// Nodes have numbers: first come the masters, then the replicas of the first master, those of the second and
/// so on, and then added nodes.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<RedisServer>,
    options: Builder,
    /// One slot of each killed node, by which its successor is found.
    killed: Mutex<HashMap<usize, u16>>,
}

impl Cluster {
    /// Starts this many masters with this many replicas each, and returns when all of them report that the
    /// cluster is well.
    ///
    /// That takes two seconds or more, since a node waits that long before it reports so.
    ///
    /// # Errors
    ///
    /// If one of them does not start, or they do not find each other in time.
    pub fn start(masters: usize, replicas: usize) -> Result<Self> {
        Self::start_with(RedisServer::builder(), masters, replicas)
    }

    /// The same, each with these options.
    ///
    /// # Errors
    ///
    /// If one of them does not start, or they do not find each other in time.
    pub fn start_with(options: Builder, masters: usize, replicas: usize) -> Result<Self> {
        let options = options
            .replicating()
            .config("cluster-enabled yes")
            .config(format!("cluster-node-timeout {NODE_TIMEOUT}"))
            .config("cluster-replica-validity-factor 0");
        let mut cluster = Self { nodes: Vec::new(), options, killed: Mutex::default() };
        cluster.form(masters, replicas)?;
        Ok(cluster)
    }

    /// All nodes, in the order of their numbers.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The node with this number.
    ///
    /// # Panics
    ///
    /// If there is none.
    #[must_use]
    pub fn node(&self, node: usize) -> &RedisServer {
        &self.nodes[node]
    }

    /// The addresses of all nodes.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }

    /// The number of the node that is responsible for the slot. All living nodes have to agree.
    ///
    /// # Errors
    ///
    /// If they do not agree, or no node is responsible.
    pub fn owner(&self, slot: u16) -> Result<usize> {
        let mut owners = self.views()?.into_iter().map(|view| view.owner(slot).map(|owner| owner.port));
        let port = owners.next().ok_or_else(|| Error::new("no node lives"))??;
        for other in owners {
            if other? != port {
                return Err(Error::new(format!("the nodes do not agree who has slot {slot}")));
            }
        }
        self.number(port)
    }

    /// The slot of a key.
    ///
    /// # Errors
    ///
    /// If no node answers.
    pub fn slot(&self, key: &str) -> Result<u16> {
        self.living().next().ok_or_else(|| Error::new("no node lives"))?.query(&["CLUSTER", "KEYSLOT", key])
    }

    /// Kills the node with this number.
    ///
    /// # Errors
    ///
    /// If no other node reports which slots it has, or the system refuses to kill it.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn kill(&self, node: usize) -> Result<()> {
        let killed = self.node(node);
        // Asks another node if there is one, in case this one is paused.
        let witness = self.living().find(|other| other.port() != killed.port()).unwrap_or(killed);
        if let Some(slot) = View::of(witness)?.member(killed.port())?.first_slot() {
            self.killed.lock().unwrap_or_else(PoisonError::into_inner).insert(node, slot);
        }
        killed.kill()
    }

    /// Returns when another node has the slots of the node with this number, which was [killed](Self::kill),
    /// and all living nodes report that the cluster is well. Returns the number of the successor.
    ///
    /// # Errors
    ///
    /// If that takes too long, as it does if the node had no replica; or if it was not a master.
    pub fn wait_for_failover(&self, node: usize) -> Result<usize> {
        let slot = self.killed.lock().unwrap_or_else(PoisonError::into_inner).get(&node).copied();
        let slot = slot.ok_or_else(|| Error::new(format!("node {node} was no master, or was not killed")))?;
        wait::until("a replica to take over", wait::LIMIT, || {
            let owner = self.owner(slot)?;
            if owner == node {
                return Err(Error::new("the killed one is still thought to have its slots"));
            }
            self.is_well()?;
            Ok(owner)
        })
    }

    /// Adds a master without slots, and returns its number. [`reshard`](Self::reshard) can give it some.
    ///
    /// # Errors
    ///
    /// If it does not start, or the others do not learn of it in time.
    pub fn add_master(&mut self) -> Result<usize> {
        let node = self.options.clone().start()?;
        self.nodes.push(node);
        let added = self.nodes.len() - 1;
        self.introduce(added)?;
        wait::until("the others to know the added node", wait::LIMIT, || self.is_well())?;
        Ok(added)
    }

    /// Returns when all living nodes report that the cluster is well: each knows all living nodes and sees
    /// none of them failing, and all slots are assigned.
    ///
    /// # Errors
    ///
    /// If that takes too long.
    pub fn wait_until_well(&self) -> Result<()> {
        wait::until("the cluster to be well", wait::LIMIT, || self.is_well())
    }

    /// Returns when all living replicas have what their masters have now.
    ///
    /// # Errors
    ///
    /// If that takes too long, or a master is gone.
    pub fn wait_until_in_sync(&self) -> Result<()> {
        for node in self.living() {
            let view = View::of(node)?;
            let Some(master) = view.master(node.port())? else { continue };
            let written = offset(&self.nodes[self.number(master.port)?])?;
            wait::until("the replica to follow", wait::LIMIT, || follows(node, written))?;
        }
        Ok(())
    }

    /// The nodes whose process runs.
    fn living(&self) -> impl Iterator<Item = &RedisServer> {
        self.nodes.iter().filter(|node| node.is_running())
    }

    fn views(&self) -> Result<Vec<View>> {
        self.living().map(View::of).collect()
    }

    fn number(&self, port: u16) -> Result<usize> {
        let found = self.nodes.iter().position(|node| node.port() == port);
        found.ok_or_else(|| Error::new(format!("port {port} is no node of ours")))
    }
}
