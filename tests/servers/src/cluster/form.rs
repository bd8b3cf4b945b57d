//! Forms a cluster from nodes that know nothing of each other.

use std::thread;

use super::{Cluster, SLOTS, View};
use crate::{
    Error, RedisServer, Result,
    server::info::{field, parsed},
    wait,
};

impl Cluster {
    /// Starts the nodes, and forms a cluster from them.
    pub(super) fn form(&mut self, masters: usize, replicas: usize) -> Result<()> {
        if masters == 0 {
            return Err(Error::new("a cluster has at least one master"));
        }
        let count = masters * (1 + replicas);
        self.nodes = self.start_nodes(count)?;
        for (i, master) in self.nodes[..masters].iter().enumerate() {
            assign(master, share(i, masters))?;
        }
        for node in 0..count {
            // Otherwise all have the same epoch, and find out one after another.
            self.nodes[node].query::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &(node + 1).to_string()])?;
        }
        for node in 1..count {
            self.introduce(node)?;
        }
        wait::until("the nodes to know each other", wait::LIMIT, || self.know_each_other())?;
        for replica in masters..count {
            self.replicate(replica, (replica - masters) / replicas)?;
        }
        self.wait_until_well()?;
        self.wait_until_in_sync()
    }

    fn start_nodes(&self, count: usize) -> Result<Vec<RedisServer>> {
        thread::scope(|scope| {
            let starting: Vec<_> = (0..count).map(|_| scope.spawn(|| self.options.clone().start())).collect();
            let join = |node: thread::ScopedJoinHandle<'_, Result<RedisServer>>| {
                node.join().unwrap_or_else(|_| Err(Error::new("starting a node panicked")))
            };
            starting.into_iter().map(join).collect()
        })
    }

    /// Introduces a node to all of those before it. They would learn of it by gossip as well, but later.
    pub(super) fn introduce(&self, node: usize) -> Result<()> {
        let port = self.nodes[node].port().to_string();
        for other in self.nodes[..node].iter().filter(|other| other.is_running()) {
            other.query::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port])?;
        }
        Ok(())
    }

    /// Makes a node the replica of another one, as soon as it knows that one.
    fn replicate(&self, replica: usize, master: usize) -> Result<()> {
        let master = self.id(master)?;
        self.nodes[replica].query(&["CLUSTER", "REPLICATE", &master])
    }

    /// The id of a node, as it reports itself.
    pub(super) fn id(&self, node: usize) -> Result<String> {
        self.nodes[node].query(&["CLUSTER", "MYID"])
    }

    /// Whether every living node knows all other living nodes, and finds none of them failing.
    fn know_each_other(&self) -> Result<()> {
        for view in self.views()? {
            for node in self.living() {
                if !view.member(node.port())?.is_well() {
                    return Err(Error::new(format!("the node on port {} seems unwell", node.port())));
                }
            }
        }
        Ok(())
    }

    /// Whether every living node reports that the cluster is well.
    pub(super) fn is_well(&self) -> Result<()> {
        self.know_each_other()?;
        for node in self.living() {
            let info: String = node.query(&["CLUSTER", "INFO"])?;
            let state = field(&info, "cluster_state")?;
            let slots: u16 = parsed(&info, "cluster_slots_ok")?;
            if state != "ok" || slots != SLOTS {
                return Err(Error::new(format!("a node's state is {state}, and {slots} slots are")));
            }
        }
        self.agree_on_replicas()
    }

    /// Whether all nodes agree with each node about who its master is.
    fn agree_on_replicas(&self) -> Result<()> {
        let views = self.views()?;
        for node in self.living() {
            let own = View::of(node)?;
            for view in &views {
                if view.member(node.port())?.master != own.member(node.port())?.master {
                    return Err(Error::new("the nodes do not agree who is a replica"));
                }
            }
        }
        Ok(())
    }
}

/// The slots of one of `masters` masters.
fn share(master: usize, masters: usize) -> std::ops::Range<usize> {
    let slots = usize::from(SLOTS);
    master * slots / masters..(master + 1) * slots / masters
}

/// One by one: ranges are supported only since Redis 7.0.
fn assign(master: &RedisServer, slots: std::ops::Range<usize>) -> Result<()> {
    let slots: Vec<_> = slots.map(|slot| slot.to_string()).collect();
    let mut command = vec!["CLUSTER", "ADDSLOTS"];
    command.extend(slots.iter().map(String::as_str));
    master.query(&command)
}
