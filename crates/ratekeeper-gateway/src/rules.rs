//! The rules in force, and how they change.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ratekeeper::Limiter;
use ratekeeper_rules::{FileSource, Loaded, Registry, ReloadError, ReloadHandle, ReloadStatus, Reloader};
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::info;

/// Reads the file.
///
/// # Errors
///
/// When it cannot be read, is too large or is invalid.
pub(crate) async fn load(path: &Path, max_size: usize) -> Result<Loaded<FileSource>, ReloadError> {
    // Nothing is registered: a file that refers to a name is refused.
    let registry = Registry::new().max_document_size(max_size);
    Reloader::new(FileSource::new(path)).registry(registry).load().await
}

/// The rules in force. They follow the file for as long as any clone of this exists.
#[derive(Clone, Debug)]
pub(crate) struct Status(Arc<ReloadHandle>);

impl Status {
    /// Makes the rules of a limiter follow the file, and reads the file again on SIGHUP.
    ///
    /// # Errors
    ///
    /// When the system does not allow listening for the signal.
    pub(crate) fn follow(loaded: Loaded<FileSource>, limiter: &Limiter) -> std::io::Result<Self> {
        let hangups = signal(SignalKind::hangup())?;
        let status = Self(Arc::new(loaded.start(limiter)));
        tokio::spawn(status.clone().reload_on(hangups));
        Ok(status)
    }

    async fn reload_on(self, mut hangups: Signal) {
        while hangups.recv().await.is_some() {
            let status = self.0.reload().await;
            info!(
                version = status.version(),
                is_good = status.problem().is_none(),
                "SIGHUP: the rules were read"
            );
        }
    }

    pub(crate) fn to_json(&self) -> String {
        shown(&self.0.status()).to_string()
    }
}

fn shown(status: &ReloadStatus) -> Value {
    let problem = status.problem();
    json!({
        "version": status.version(),
        "rules": status.rules(),
        "since": seconds(status.since()),
        "read_at": status.read_at().map(seconds),
        "error": problem.map(|problem| problem.error().to_string()),
        "error_since": problem.map(|problem| seconds(problem.since())),
        "needs_restart": status.needs_restart(),
    })
}

/// In Unix seconds; 0 for times before the epoch.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
