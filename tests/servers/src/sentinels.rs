//! A master and its replicas, watched over by sentinels.

use crate::{Builder, Error, RedisServer, Replication, Result, replication::is_master, wait};

/// How many sentinels there are. Two of them decide.
const SENTINELS: usize = 3;

/// What a sentinel does more often than it usually would, in milliseconds, so that tests are quick. Before
/// Redis 7.0 this cannot be configured.
///
/// The ping period is left unchanged: a replica that has not answered for five pings is not made the master,
/// and while the master is gone it is asked at most once a second.
const PERIODS: [(&str, &str); 3] = [("info-period", "100"), ("ask-period", "100"), ("publish-period", "100")];

/// A master with replicas and three sentinels, which promote a replica when the master has been gone for half
/// a second.
#[derive(Debug)]
pub struct Sentinels {
    sentinels: Vec<RedisServer>,
    replication: Replication,
}

impl Sentinels {
    /// The name under which the sentinels know the master.
    pub const NAME: &'static str = "ratekeeper";

    /// Starts a master with this many replicas and three sentinels.
    ///
    /// Returns when the sentinels know all of them, and each other.
    ///
    /// # Errors
    ///
    /// If one of them does not start, or they do not find each other in time.
    pub fn start(replicas: usize) -> Result<Self> {
        Self::start_with(RedisServer::builder(), replicas)
    }

    /// The same, with these options for master and replicas.
    ///
    /// # Errors
    ///
    /// If one of them does not start, or they do not find each other in time.
    pub fn start_with(options: Builder, replicas: usize) -> Result<Self> {
        let password = options.default_password().map(str::to_owned);
        let replication = Replication::start_with(options, replicas)?;
        let watching = watching(replication.master().port(), password.as_deref());
        let sentinels = (0..SENTINELS).map(|_| watching.clone().start()).collect::<Result<Vec<_>>>()?;
        for sentinel in &sentinels {
            for (period, milliseconds) in PERIODS {
                // Without this it works, too, but more slowly.
                let _ = sentinel.command(&["SENTINEL", "DEBUG", period, milliseconds]);
            }
        }
        let started = Self { sentinels, replication };
        for sentinel in &started.sentinels {
            wait::until("the sentinels to find each other", wait::LIMIT, || knows(sentinel, replicas))?;
        }
        Ok(started)
    }

    /// The sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// The addresses of the sentinels.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.sentinels.iter().map(RedisServer::url).collect()
    }

    /// Master and replicas as they were at the start.
    #[must_use]
    pub fn replication(&self) -> &Replication {
        &self.replication
    }

    /// Master and replicas, starting with the server that was the master at the start.
    pub fn servers(&self) -> impl Iterator<Item = &RedisServer> {
        [self.replication.master()].into_iter().chain(self.replication.replicas())
    }

    /// The master that all sentinels name.
    ///
    /// # Errors
    ///
    /// If they do not agree, or one does not answer.
    pub fn master(&self) -> Result<&RedisServer> {
        let mut agreed = None;
        for sentinel in &self.sentinels {
            let (_, port): (String, u16) =
                sentinel.query(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Self::NAME])?;
            if agreed.is_some_and(|agreed| agreed != port) {
                return Err(Error::new("the sentinels do not agree"));
            }
            agreed = Some(port);
        }
        self.servers()
            .find(|server| Some(server.port()) == agreed)
            .ok_or_else(|| Error::new("the sentinels name a server that is not there"))
    }

    /// Kills the master, and returns which one that was.
    ///
    /// # Errors
    ///
    /// If the sentinels do not agree which one it is.
    pub fn kill_master(&self) -> Result<&RedisServer> {
        let master = self.master()?;
        master.kill()?;
        Ok(master)
    }

    /// Returns when all sentinels name a master other than `former`, and that one is a master.
    ///
    /// # Errors
    ///
    /// If that takes too long.
    pub fn wait_for_failover(&self, former: &RedisServer) -> Result<&RedisServer> {
        wait::until("another master", wait::LIMIT, || {
            let master = self.master()?;
            if master.port() == former.port() {
                return Err(Error::new("the sentinels stay with the former one"));
            }
            is_master(master)?;
            Ok(master)
        })
    }
}

/// The options of a sentinel that watches the master on this port.
fn watching(port: u16, password: Option<&str>) -> Builder {
    let name = Sentinels::NAME;
    let options = RedisServer::builder()
        .argument("--sentinel")
        .config(format!("sentinel monitor {name} 127.0.0.1 {port} 2"))
        .config(format!("sentinel down-after-milliseconds {name} 500"))
        .config(format!("sentinel failover-timeout {name} 1000"));
    match password {
        Some(password) => options.config(format!("sentinel auth-pass {name} {password:?}")),
        None => options,
    }
}

/// Whether a sentinel knows the others and all replicas, and finds nothing wrong.
fn knows(sentinel: &RedisServer, replicas: usize) -> Result<()> {
    let state: std::collections::HashMap<String, String> =
        sentinel.query(&["SENTINEL", "MASTER", Sentinels::NAME])?;
    let of = |name: &str| state.get(name).map_or("unknown", String::as_str);
    let found = (of("flags"), of("num-other-sentinels"), of("num-slaves"));
    if found == ("master", &(SENTINELS - 1).to_string(), &replicas.to_string()) {
        return Ok(());
    }
    Err(Error::new(format!("flags, sentinels and replicas are {found:?}")))
}
