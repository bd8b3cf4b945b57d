//! Shutdown.

use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The shutdown, as every running task sees it.
///
/// First nothing new is begun; then, when the time is up, what is still running is cut off.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shutdown {
    draining: CancellationToken,
    cut: CancellationToken,
    tasks: TaskTracker,
}

impl Shutdown {
    /// Spawns a task that shutdown waits for.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Waits until nothing new is begun.
    pub(crate) fn draining(&self) -> impl Future<Output = ()> + Send + use<> {
        self.draining.clone().cancelled_owned()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Waits until what is still running is cut off.
    pub(crate) fn cut(&self) -> impl Future<Output = ()> + Send + use<> {
        self.cut.clone().cancelled_owned()
    }

    /// Begins nothing new from here on.
    pub(crate) fn drain(&self) {
        self.draining.cancel();
        self.tasks.close();
    }

    /// Waits for running tasks until the grace period ends or `impatient` completes, and cuts off the rest.
    /// Returns whether all tasks ended by themselves.
    pub(crate) async fn finish(&self, grace: Duration, impatient: impl Future<Output = ()>) -> bool {
        let finished = tokio::select! {
            () = self.tasks.wait() => true,
            () = tokio::time::sleep(grace) => false,
            () = impatient => false,
        };
        self.cut.cancel();
        // Tasks that are cut off end immediately.
        self.tasks.wait().await;
        finished
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::{Instant, sleep};

    use super::*;

    const GRACE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn what_runs_may_come_to_its_end() {
        let shutdown = Shutdown::default();
        shutdown.spawn(sleep(Duration::from_secs(10)));
        shutdown.drain();
        let start = Instant::now();
        assert!(shutdown.finish(GRACE, pending()).await);
        assert_eq!(start.elapsed().as_secs(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn what_runs_on_is_cut_off() {
        let shutdown = Shutdown::default();
        shutdown.spawn(shutdown.cut());
        shutdown.drain();
        let start = Instant::now();
        assert!(!shutdown.finish(GRACE, pending()).await);
        assert_eq!(start.elapsed().as_secs(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_impatient_does_not_wait() {
        let shutdown = Shutdown::default();
        shutdown.spawn(shutdown.cut());
        shutdown.drain();
        let start = Instant::now();
        assert!(!shutdown.finish(GRACE, sleep(Duration::from_secs(1))).await);
        assert_eq!(start.elapsed().as_secs(), 1);
    }
}
