//! The settings of a store.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{Clock, ManualClock, Timestamp};

use crate::name::Names;
use crate::observe::StoreWatch;

/// What the builder has collected.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) prefix: String,
    /// Names the counters.
    pub(crate) names: Arc<Names>,
    pub(crate) timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) max_waiting: usize,
    /// How many counters a call has at most, and how many requests a batch. More would block the server for
    /// others for longer than a millisecond.
    pub(crate) batch: usize,
    pub(crate) max_backoff: Duration,
    pub(crate) denial_cache_ttl: Duration,
    pub(crate) denial_cache_capacity: usize,
    /// Whether the counters are on a cluster, where each call is about one slot.
    pub(crate) cluster: bool,
    /// A time to decide at instead of the server's.
    pub(crate) clock: Option<ManualClock>,
    pub(crate) watch: Arc<StoreWatch>,
}

/// The default prefix of names.
const PREFIX: &str = "ratekeeper";
/// How long a connection may be silent, in deadlines, before it is replaced.
const SILENCE: u32 = 40;
/// The shortest silence after which it is replaced. Even a good connection may take that long.
const LEAST_SILENCE: Duration = Duration::from_millis(100);
/// The longest silence past a deadline. A server that is gone is as silent as one that is stopped, and a new
/// connection would find the server that has taken its place.
const MOST_SILENCE: Duration = Duration::from_secs(2);

impl Config {
    /// How long a connection may be silent before it is replaced.
    pub(crate) fn silence(&self) -> Duration {
        (self.timeout * SILENCE).max(LEAST_SILENCE).min(self.timeout + MOST_SILENCE)
    }

    /// The time to pass to the script, if it is not to use the server's.
    pub(crate) fn now(&self) -> Option<Timestamp> {
        self.clock.as_ref().map(Clock::now)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            prefix: PREFIX.to_owned(),
            names: Arc::new(Names::new(PREFIX, false)),
            timeout: Duration::from_millis(5),
            connect_timeout: Duration::from_secs(1),
            max_waiting: 10_000,
            batch: 256,
            max_backoff: Duration::from_secs(1),
            denial_cache_ttl: Duration::from_secs(1),
            denial_cache_capacity: 100_000,
            cluster: false,
            clock: None,
            watch: Arc::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_connection_is_given_up_after_some_deadlines_but_not_too_soon_nor_too_late() {
        for (timeout, silence) in [(1, 100), (5, 200), (50, 2_000), (100, 2_100), (20_000, 22_000)] {
            let config = Config { timeout: Duration::from_millis(timeout), ..Config::default() };
            assert_eq!(config.silence(), Duration::from_millis(silence), "{timeout}");
        }
    }
}
