//! What is left in the hands of who started it.

use std::fmt;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

use super::ReloadStatus;

/// Somebody who wants the source to be read now, and to be told when that was done.
pub(super) type Asked = oneshot::Sender<()>;

/// Rules that are being reloaded, for as long as there is this handle.
///
/// When it is dropped, the rules in force stay as they are.
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

    /// Tells each change of the [status](Self::status).
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<ReloadStatus> {
        self.status.clone()
    }

    /// Reads the source now, without waiting until it tells of a change, and says what the status is then. For a signal,
    /// or an address that operators call.
    pub async fn reload(&self) -> ReloadStatus {
        let (done, is_done) = oneshot::channel();
        if self.asked.send(done).await.is_ok() {
            // Of a source that has panicked nothing more comes, and the status says what was.
            let _ = is_done.await;
        }
        self.status()
    }

    /// Whether rules are still reloaded. They are, unless the source has panicked or the runtime has ended.
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
