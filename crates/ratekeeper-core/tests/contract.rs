//! The in-memory store, on its own threads and on a multi-threaded runtime.

use std::future::{Future, ready};

use ratekeeper_contract::{Harness, MemoryHarness, suite};
use ratekeeper_core::{Clock, ManualClock, MemoryStore, Timestamp};

mod on_threads {
    use super::*;

    suite!(test, MemoryHarness::new());
}

mod on_tokio {
    use super::*;

    suite!(tokio::test(flavor = "multi_thread", worker_threads = 4), TokioHarness::new());
}

mod small {
    use super::*;

    // One shard, so that all keys are under the same lock and in the same table.
    suite!(test, SizedHarness::new(1_000));
}

/// An in-memory store for this many keys, with a thread for each task.
struct SizedHarness {
    clock: ManualClock,
    store: MemoryStore<ManualClock>,
}

impl SizedHarness {
    fn new(max_keys: usize) -> Self {
        let clock = ManualClock::new(Timestamp::UNIX_EPOCH);
        Self { store: MemoryStore::builder().max_keys(max_keys).clock(clock.clone()).build(), clock }
    }
}

impl Harness for SizedHarness {
    type Store = MemoryStore<ManualClock>;

    fn store(&self) -> Self::Store {
        self.store.clone()
    }

    fn now(&self) -> impl Future<Output = Timestamp> + Send {
        ready(self.clock.now())
    }

    fn set(&self, now: Timestamp) -> impl Future<Output = ()> + Send {
        self.clock.set(now);
        ready(())
    }
}

/// The same, with its tasks on the workers of the runtime.
struct TokioHarness(SizedHarness);

impl TokioHarness {
    fn new() -> Self {
        Self(SizedHarness::new(1_000_000))
    }
}

impl Harness for TokioHarness {
    type Store = MemoryStore<ManualClock>;

    fn store(&self) -> Self::Store {
        self.0.store()
    }

    fn now(&self) -> impl Future<Output = Timestamp> + Send {
        self.0.now()
    }

    fn set(&self, now: Timestamp) -> impl Future<Output = ()> + Send {
        self.0.set(now)
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> impl Future<Output = ()> + Send {
        let task = tokio::spawn(task);
        async move { task.await.expect("the task does not panic") }
    }
}
