//! Builds a store.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::ManualClock;

use crate::cluster::{Connections, Router};
use crate::config::Config;
use crate::connection::Connection;
use crate::denial_cache::DenialCache;
use crate::error::SetupError;
use crate::name::Names;
use crate::store::RedisStore;
use crate::store::servers::{Kind, Servers};

/// The longest that a decision, or making a connection, may take.
const LONGEST: Duration = Duration::from_secs(86_400);

/// Builds a [`RedisStore`].
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

    /// The prefix of the names of all counters; `ratekeeper` by default. Stores with different prefixes are
    /// independent of each other.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.config.prefix = prefix.into();
        self
    }

    /// How long a decision may take; 5 ms by default, and at most a day. After that it has failed, and will
    /// not be made any more.
    ///
    /// A connection on which no answer arrives for forty times as long, but at least 100 ms and at most two
    /// seconds more than this timeout, is replaced.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.config.timeout = timeout;
        self
    }

    /// How long making a connection, in the background, may take; one second by default, and at most a day.
    pub const fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.config.connect_timeout = timeout;
        self
    }

    /// How many requests may wait for one server; 10,000 by default. Any more fail immediately. On a cluster,
    /// as many again may wait for nodes that slots are moving to, or that are new and being connected to.
    ///
    /// As many refunds and debits may wait in addition, even while the server fails. Any more are not made,
    /// which their future reports.
    pub const fn max_waiting(mut self, requests: usize) -> Self {
        self.config.max_waiting = requests;
        self
    }

    /// The longest pause between two attempts to reach a failed server; one second by default. The first
    /// pause is some milliseconds, and each is twice the one before.
    pub const fn max_backoff(mut self, pause: Duration) -> Self {
        self.config.max_backoff = pause;
        self
    }

    /// For how long, at most, a key that Redis has denied is denied without asking again; one second by
    /// default. With zero, Redis is always asked.
    ///
    /// No key is denied for longer than its wait. But for a key that was denied here, what *another* process
    /// refunds or resets takes effect up to this much later.
    pub const fn denial_cache_ttl(mut self, duration: Duration) -> Self {
        self.config.denial_cache_ttl = duration;
        self
    }

    /// How many denied keys are remembered, rounded up to a multiple of sixteen; 100,000 by default. Redis is
    /// asked about all others.
    pub const fn denial_cache_capacity(mut self, keys: usize) -> Self {
        self.config.denial_cache_capacity = keys;
        self
    }

    /// Decides at the time of this clock instead of the server's. For tests. (A clock that stands at the Unix
    /// epoch itself is ignored.)
    pub fn clock(mut self, clock: ManualClock) -> Self {
        self.config.clock = Some(clock);
        self
    }

    /// Builds the store, which starts to connect.
    ///
    /// # Errors
    ///
    /// If a setting is invalid, or there is no tokio runtime.
    pub fn build(self) -> Result<RedisStore, SetupError> {
        let Self { servers, mut config } = self;
        // Practically for ever, yet small enough to compute with.
        config.timeout = config.timeout.min(LONGEST);
        config.connect_timeout = config.connect_timeout.min(LONGEST);
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
        // Two stores made by one builder are observed separately.
        config.watch = Arc::default();
        config.cluster = matches!(servers.0, Kind::Cluster(_));
        config.names = Arc::new(Names::new(&config.prefix, config.cluster));
        let denied = Arc::new(DenialCache::new(&config));
        match servers.0 {
            Kind::One(target) => {
                let connection = Connection::start(target, &config, Arc::clone(&denied), None, None);
                Ok(RedisStore::start(Connections::One(connection), config, denied))
            }
            Kind::Cluster(seeds) => {
                let router = Router::start(seeds, &config, Arc::clone(&denied));
                Ok(RedisStore::start(Connections::Cluster(router), config, denied))
            }
        }
    }
}
