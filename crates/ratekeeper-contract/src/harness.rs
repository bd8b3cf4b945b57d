use std::future::{Future, ready};
use std::thread;
use std::time::Duration;

use ratekeeper_core::{Clock, ManualClock, MemoryStore, Store, Timestamp};

use crate::block_on;

/// How the cases reach a store and move its time.
///
/// Each case gets its own harness. Harnesses may share a server, as long as they do not share the time: if
/// the server keeps the time, the harness passes its own time to each decision instead.
pub trait Harness: Send + Sync + 'static {
    /// The store.
    type Store: Store;

    /// A store.
    ///
    /// If called again, it returns one with the same counters and the same time: the same store, or one with
    /// its own connection, as another node would have.
    fn store(&self) -> Self::Store;

    /// The store's time.
    fn now(&self) -> impl Future<Output = Timestamp> + Send;

    /// Sets the store's time, forwards or back.
    fn set(&self, now: Timestamp) -> impl Future<Output = ()> + Send;

    /// Moves the store's time forwards.
    fn advance(&self, by: Duration) -> impl Future<Output = ()> + Send {
        async move {
            let now = self.now().await;
            self.set(now.saturating_add(by)).await;
        }
    }

    /// Starts a task immediately, and returns a future that waits for it to end.
    ///
    /// The cases that need many tasks at the same time start them all before they wait. By default, each task
    /// has its own thread, without a runtime. A store that needs a runtime hands the tasks to it, on more
    /// than one thread. They must not run one after the other, as that would test nothing about concurrency.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> impl Future<Output = ()> + Send {
        let thread = thread::spawn(move || block_on(task));
        async move {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

/// A [`MemoryStore`] on a [`ManualClock`], with a thread for each task.
#[derive(Debug)]
pub struct MemoryHarness {
    clock: ManualClock,
    store: MemoryStore<ManualClock>,
}

impl MemoryHarness {
    /// A new store.
    #[must_use]
    pub fn new() -> Self {
        let clock = ManualClock::new(Timestamp::UNIX_EPOCH);
        Self { store: MemoryStore::builder().clock(clock.clone()).build(), clock }
    }
}

impl Default for MemoryHarness {
    fn default() -> Self {
        Self::new()
    }
}

impl Harness for MemoryHarness {
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
