//! The contract that every store keeps, kept by Redis.

use std::future::{Future, ready};

use ratekeeper_contract::{Harness, suite};
use ratekeeper_core::{Clock, ManualClock, Timestamp};
use ratekeeper_redis::RedisStore;

use crate::support::{PATIENCE, patient, shared_server};

mod asking_always {
    use super::*;

    suite!(tokio::test(flavor = "multi_thread", worker_threads = 2), RedisHarness::asking_always());
}

mod denying_from_memory {
    use super::*;

    suite!(tokio::test(flavor = "multi_thread", worker_threads = 2), RedisHarness::new());
}

/// Stores on a shared server, each on its own time.
struct RedisHarness {
    clock: ManualClock,
    denial_cache_ttl: std::time::Duration,
}

impl RedisHarness {
    fn new() -> Self {
        let clock = ManualClock::new(Timestamp::UNIX_EPOCH);
        Self { clock, denial_cache_ttl: std::time::Duration::from_secs(1) }
    }

    fn asking_always() -> Self {
        Self { denial_cache_ttl: std::time::Duration::ZERO, ..Self::new() }
    }
}

impl Harness for RedisHarness {
    type Store = RedisStore;

    fn store(&self) -> RedisStore {
        let store =
            patient(shared_server()).clock(self.clock.clone()).denial_cache_ttl(self.denial_cache_ttl);
        let store = store.build().expect("the store can be made");
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(store.ready(PATIENCE)))
            .expect("the server works");
        store
    }

    fn now(&self) -> impl Future<Output = Timestamp> + Send {
        ready(self.clock.now())
    }

    fn set(&self, now: Timestamp) -> impl Future<Output = ()> + Send {
        self.clock.set(now);
        ready(())
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> impl Future<Output = ()> + Send {
        let task = tokio::spawn(task);
        async move { task.await.expect("the task does not panic") }
    }
}
