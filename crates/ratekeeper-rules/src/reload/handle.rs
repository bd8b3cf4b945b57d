//! The handle of a running reload task.

use std::fmt;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use super::ReloadStatus;

/// A request to read the source now, and to be notified when that is done.
pub(super) type Asked = oneshot::Sender<()>;

/// A handle that keeps reloading rules for as long as it exists.
///
/// When it is dropped, the rules in force stay in force.
#[must_use = "rules are reloaded only for as long as there is the handle"]
pub struct ReloadHandle {
    pub(super) status: watch::Receiver<ReloadStatus>,
    pub(super) asked: mpsc::Sender<Asked>,
    pub(super) task: AbortHandle,
}

impl ReloadHandle {
    /// Which rules are in force, and what became of others.
    #[must_use]
    pub fn status(&self) -> ReloadStatus {
        self.status.borrow().clone()
    }

    /// A receiver that sees each change of the [status](Self::status).
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<ReloadStatus> {
        self.status.clone()
    }

    /// Reads the source now, without waiting for it to report a change, and returns the status after that.
    /// Useful for a signal, or an endpoint that operators call.
    pub async fn reload(&self) -> ReloadStatus {
        let (done, is_done) = oneshot::channel();
        if self.asked.send(done).await.is_ok() {
            // A source that has panicked sends nothing more, and the status stays as it was.
            let _ = is_done.await;
        }
        self.status()
    }

    /// Whether rules are still reloaded. They are, unless the source has panicked or the runtime has shut
    /// down.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.task.is_finished()
    }
}

impl Drop for ReloadHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for ReloadHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReloadHandle").field("status", &*self.status.borrow()).finish_non_exhaustive()
    }
}
