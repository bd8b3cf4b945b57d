//! A master and its replicas.

use crate::{
    Builder, Error, RedisServer, Result,
    server::info::{field, parsed},
    wait,
};

/// A master with replicas, in sync when it is started. Nothing watches over them: see
/// [`Sentinels`](crate::Sentinels) for that.
#[derive(Debug)]
pub struct Replication {
    master: RedisServer,
    replicas: Vec<RedisServer>,
}

impl Replication {
    /// Starts a master with this many replicas.
    ///
    /// # Errors
    ///
    /// If one of them does not start, or they are not in sync in time.
    pub fn start(replicas: usize) -> Result<Self> {
        Self::start_with(RedisServer::builder(), replicas)
    }

    /// The same, each with these options.
    ///
    /// # Errors
    ///
    /// If one of them does not start, or they are not in sync in time.
    pub fn start_with(options: Builder, replicas: usize) -> Result<Self> {
        let options = options.replicating();
        let master = options.clone().start()?;
        let following = options.config(format!("replicaof 127.0.0.1 {}", master.port()));
        let replicas = (0..replicas).map(|_| following.clone().start()).collect::<Result<_>>()?;
        let started = Self { master, replicas };
        started.wait_until_in_sync()?;
        Ok(started)
    }

    /// The server that was the master at the start.
    #[must_use]
    pub fn master(&self) -> &RedisServer {
        &self.master
    }

    /// The servers that were replicas at the start.
    #[must_use]
    pub fn replicas(&self) -> &[RedisServer] {
        &self.replicas
    }

    /// Makes the replica with this number a master. The old master is not informed, and continues if it runs.
    ///
    /// # Errors
    ///
    /// If the replica does not obey.
    ///
    /// # Panics
    ///
    /// If there is no such replica.
    pub fn promote(&self, replica: usize) -> Result<&RedisServer> {
        let replica = &self.replicas[replica];
        replica.query::<()>(&["REPLICAOF", "NO", "ONE"])?;
        wait::until("the replica to be a master", wait::LIMIT, || is_master(replica))?;
        Ok(replica)
    }

    /// Returns when all replicas have what the master has now.
    ///
    /// # Errors
    ///
    /// If they do not have it in time, or a replica was promoted.
    pub fn wait_until_in_sync(&self) -> Result<()> {
        let written = offset(&self.master)?;
        for replica in &self.replicas {
            wait::until("the replica to follow", wait::LIMIT, || follows(replica, written))?;
        }
        Ok(())
    }
}

/// The length of the server's history of changes.
pub(crate) fn offset(server: &RedisServer) -> Result<u64> {
    parsed(&server.info("replication")?, "master_repl_offset")
}

/// Whether the server is a master.
pub(crate) fn is_master(server: &RedisServer) -> Result<()> {
    match field(&server.info("replication")?, "role")? {
        "master" => Ok(()),
        role => Err(Error::new(format!("its role is {role}"))),
    }
}

/// Whether the server is a replica that has read its master's history so far.
pub(crate) fn follows(server: &RedisServer, written: u64) -> Result<()> {
    let info = server.info("replication")?;
    let link = field(&info, "master_link_status")?;
    let read: u64 = parsed(&info, "slave_repl_offset")?;
    if link == "up" && read >= written {
        return Ok(());
    }
    Err(Error::new(format!("its link is {link}, and it has read {read} of {written}")))
}
