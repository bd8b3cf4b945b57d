//! Requests that keep coming during a failure.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use ratekeeper_redis::RedisStore;
use tokio::task::JoinSet;

use super::tally::{Caller, Tally};
use crate::support::PATIENCE;

/// Tasks that charge one after the other, each on its own key.
#[derive(Debug)]
pub(crate) struct Load {
    tasks: JoinSet<Tally>,
    callers: Vec<Caller>,
    flags: Arc<Flags>,
}

#[derive(Debug, Default)]
struct Flags {
    stop: AtomicBool,
    admitted: AtomicU32,
    failed: AtomicU32,
}

impl Load {
    /// Each task asks again a millisecond after its answer, as clients come and go.
    pub(crate) fn start(store: &RedisStore, tasks: usize) -> Self {
        Self::with_pause(store, tasks, Duration::from_millis(1))
    }

    /// Each task asks again as soon as it is served.
    pub(crate) fn eager(store: &RedisStore, tasks: usize) -> Self {
        Self::with_pause(store, tasks, Duration::ZERO)
    }

    fn with_pause(store: &RedisStore, tasks: usize, pause: Duration) -> Self {
        let callers: Vec<_> = (0..tasks).map(|i| Caller::new(&format!("load-{i}"))).collect();
        let flags = Arc::new(Flags::default());
        let mut set = JoinSet::new();
        for caller in callers.clone() {
            let (store, flags) = (store.clone(), Arc::clone(&flags));
            set.spawn(async move {
                let mut all = Tally::default();
                while !flags.stop.load(Ordering::Relaxed) {
                    let mut one = Tally::default();
                    caller.tally(&store, &mut one).await;
                    flags.admitted.fetch_add(one.admitted, Ordering::Relaxed);
                    flags.failed.fetch_add(one.failed(), Ordering::Relaxed);
                    // Tasks that fail immediately must not keep the machine busy.
                    let pause = if one.failed() > 0 { Duration::from_millis(1) } else { pause };
                    all.join(one);
                    if !pause.is_zero() {
                        tokio::time::sleep(pause).await;
                    }
                }
                all
            });
        }
        Self { tasks: set, callers, flags }
    }

    /// Waits until this many more were admitted.
    pub(crate) async fn served(&self, more: u32) {
        until(&self.flags.admitted, more, "admitted").await;
    }

    /// Waits until this many more have failed.
    pub(crate) async fn failing(&self, more: u32) {
        until(&self.flags.failed, more, "failed").await;
    }

    /// Stops the tasks, and returns what they saw and which callers they charged.
    pub(crate) async fn stop(mut self) -> (Tally, Vec<Caller>) {
        self.flags.stop.store(true, Ordering::Relaxed);
        let mut all = Tally::default();
        while let Some(tally) = self.tasks.join_next().await {
            all.join(tally.expect("nothing panics"));
        }
        (all, self.callers)
    }
}

async fn until(counter: &AtomicU32, more: u32, what: &str) {
    let goal = counter.load(Ordering::Relaxed) + more;
    let reached = async {
        while counter.load(Ordering::Relaxed) < goal {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    if tokio::time::timeout(PATIENCE, reached).await.is_err() {
        panic!("{} of {goal} were {what}", counter.load(Ordering::Relaxed));
    }
}

/// What Redis has counted for all of them.
pub(crate) async fn counted(store: &RedisStore, callers: &[Caller]) -> u32 {
    let mut all = 0;
    for caller in callers {
        all += caller.counted(store).await;
    }
    all
}
