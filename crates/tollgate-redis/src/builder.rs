//! How a store is made.

use std::sync::Arc;
use std::time::Duration;

use tollgate_core::ManualClock;

use crate::cluster::Router;
use crate::config::Config;
use crate::denied::Denied;
use crate::error::SetupError;
use crate::link::Link;
use crate::name::Names;
use crate::servers::{Kind, Servers};
use crate::store::{Links, RedisStore};

/// Who looks for an answer for longer had better sleep.
const MOST_SPIN: Duration = Duration::from_millis(1);

/// The longest that a decision may take.
const LONGEST: Duration = Duration::from_secs(86_400);

/// Makes a [`RedisStore`].
#[derive(Clone, Debug)]
#[must_use]
pub struct RedisStoreBuilder {
    servers: Servers,
    config: Config,
}

impl RedisStoreBuilder {
    pub(crate) fn new(servers: Servers) -> Self {
        Self { servers, config: Config::default() }
    }

    /// What the names of all counters begin with; `tollgate` if not said. Stores with different prefixes have nothing
    /// to do with each other.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.config.prefix = prefix.into();
        self
    }

    /// How long a decision may take; 5 ms if not said. After that it has failed, and is not made any more.
    ///
    /// A connection over which no answer comes for forty times as long, but at least 100 ms and at most two seconds more than
    /// this, is given up for a new one.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.config.timeout = timeout;
        self
    }

    /// How long a connection may take to be made, in the background; one second if not said.
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.config.connect_timeout = timeout;
        self
    }

    /// How many requests may wait for one server; 10,000 if not said. More fail at once. On a cluster as many may wait
    /// besides for nodes that slots are on their way to, or that are new and being connected to.
    ///
    /// As many refunds and debits may wait besides, also while the server fails. More are not made, which their
    /// future says.
    pub const fn max_waiting(mut self, requests: usize) -> Self {
        self.config.max_waiting = requests;
        self
    }

    /// How long an answer is looked for before the task that holds the connection sleeps; 100 µs if not said. Zero: it sleeps at
    /// once. At most a millisecond, and a tenth of the [timeout](Self::timeout).
    ///
    /// Where Redis is near, being woken takes longer than most answers do, for the server as well. With one thread for the
    /// runtime and a core left for Redis, 64 requests in flight became 1.2 to 1.4 times as fast by this, for three quarters to nine tenths of the
    /// server's time; with two threads on the same two cores as Redis it made little difference. One caller that asks again as soon
    /// as it is answered waits half as long. It costs up to a sixth more of this process's time in a crowd, and at most as long as is
    /// said here for an answer that one waits for. So say zero where time is scarce, as in a container with a quota; and do not
    /// raise it to reach a server that is far away.
    ///
    /// It is done while sixteen requests or more wait, or did a moment ago, and for whoever asks no later than this after the last
    /// answer: who comes more seldom finds both sides asleep, and nothing is gained. Other tasks of the runtime go first, and where
    /// answers take longer it is tried ever more seldom.
    pub const fn spin(mut self, duration: Duration) -> Self {
        self.config.spin = duration;
        self
    }

    /// The longest pause between two attempts to reach a server that failed; one second if not said. The first is
    /// some milliseconds, and each is twice the one before.
    pub const fn longest_pause(mut self, pause: Duration) -> Self {
        self.config.longest_pause = pause;
        self
    }

    /// For how long, at most, a key that Redis has denied is denied without asking again; one second if not said. Zero:
    /// Redis is always asked.
    ///
    /// Nobody is denied for longer than its wait. But what is refunded or reset by *another* process takes effect only
    /// after this time, for a key that was denied here.
    pub const fn deny_from_memory_for(mut self, duration: Duration) -> Self {
        self.config.deny_for = duration;
        self
    }

    /// How many denied keys are remembered, rounded up to a multiple of sixteen; 100,000 if not said. Redis is asked about the
    /// others.
    pub const fn denied_keys(mut self, keys: usize) -> Self {
        self.config.denied_keys = keys;
        self
    }

    /// Decides at the time of this clock, and not at that of the server. For tests. (A clock that stands at the Unix epoch itself is
    /// taken for none.)
    pub fn clock(mut self, clock: ManualClock) -> Self {
        self.config.clock = Some(clock);
        self
    }

    /// Makes the store, which begins to connect.
    ///
    /// # Errors
    ///
    /// When something makes no sense, or there is no tokio runtime.
    pub fn build(self) -> Result<RedisStore, SetupError> {
        let Self { servers, mut config } = self;
        // As good as never, and moments can be computed with it.
        config.timeout = config.timeout.min(LONGEST);
        config.spin = config.spin.min(MOST_SPIN).min(config.timeout / 10);
        let is_fit = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'{' | b'}');
        if !(1..=64).contains(&config.prefix.len()) || !config.prefix.bytes().all(is_fit) {
            return Err(SetupError::Prefix(config.prefix));
        }
        if config.timeout.is_zero() || config.connect_timeout.is_zero() {
            return Err(SetupError::ZeroTimeout);
        }
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(SetupError::NoRuntime);
        }
        // Two stores that were made by one builder are seen apart.
        config.watch = Arc::default();
        config.cluster = matches!(servers.0, Kind::Cluster(_));
        config.names = Arc::new(Names::new(&config.prefix, config.cluster));
        let denied = Arc::new(Denied::new(&config));
        match servers.0 {
            Kind::One(target) => {
                let link = Link::start(target, &config, Arc::clone(&denied), None);
                Ok(RedisStore::start(Links::One(link), config, denied))
            }
            Kind::Cluster(seeds) => {
                let router = Router::start(seeds, &config, Arc::clone(&denied));
                Ok(RedisStore::start(Links::Cluster(router), config, denied))
            }
        }
    }
}
