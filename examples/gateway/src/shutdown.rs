//! How the gateway ends.

use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What everything that runs has to know of the end.
///
/// First nothing new is begun; then, when its time is up, what still runs is cut off.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shutdown {
    draining: CancellationToken,
    cut: CancellationToken,
    tasks: TaskTracker,
}

impl Shutdown {
    /// Runs something whose end is waited for.
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

    /// Waits until what still runs is cut off.
    pub(crate) fn cut(&self) -> impl Future<Output = ()> + Send + use<> {
        self.cut.clone().cancelled_owned()
    }

    /// Begins nothing new from here on.
    pub(crate) fn drain(&self) {
        self.draining.cancel();
        self.tasks.close();
    }

    /// Waits for what runs, for as long as it may take or until somebody is impatient, and cuts off the rest. Tells whether
    /// all has come to its own end.
    pub(crate) async fn finish(&self, grace: Duration, impatient: impl Future<Output = ()>) -> bool {
        let finished = tokio::select! {
            () = self.tasks.wait() => true,
            () = tokio::time::sleep(grace) => false,
            () = impatient => false,
        };
        self.cut.cancel();
        // Whoever is cut off says so at once.
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
