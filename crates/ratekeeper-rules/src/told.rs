//! Logging and metrics of reloads. Without the features `tracing` and `metrics` it does nothing.
#![cfg_attr(not(all(feature = "metrics", feature = "tracing")), allow(unused_variables))]

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use crate::ReloadError;
#[cfg(feature = "metrics")]
use crate::reload::metrics::{self, Outcome};

/// Reports that rules came into force.
pub(crate) fn applied(
    source: &'static str,
    former: &str,
    version: &str,
    rules: usize,
    needs_restart: &[&str],
) {
    #[cfg(feature = "metrics")]
    {
        metrics::describe();
        metrics::reloaded(source, Outcome::Applied);
        metrics::failing(source, false);
        metrics::in_force(former, version, rules);
    }
    #[cfg(feature = "tracing")]
    {
        tracing::info!(source, version, former, rules, "rules are in force");
        if !needs_restart.is_empty() {
            let fields = needs_restart.join(", ");
            tracing::warn!(
                source,
                version,
                fields,
                "settings have changed that take effect at the next start"
            );
        }
    }
}

/// Counts that rules were refused, or could not be read.
pub(crate) fn counted(source: &'static str, is_refused: bool) {
    #[cfg(feature = "metrics")]
    {
        metrics::reloaded(source, if is_refused { Outcome::Refused } else { Outcome::Unread });
        metrics::failing(source, true);
    }
}

/// Logs the same.
pub(crate) fn failed(source: &'static str, in_force: &str, error: &ReloadError) {
    #[cfg(feature = "tracing")]
    match error.refused_version() {
        Some(refused) => {
            tracing::error!(source, in_force, refused, %error, "rules are refused, and those before stay in force");
        }
        None => {
            tracing::warn!(source, in_force, %error, "rules cannot be read, and those before stay in force");
        }
    }
}

/// Reports that the source has the rules in force again.
pub(crate) fn mended(source: &'static str, version: &str) {
    #[cfg(feature = "metrics")]
    metrics::failing(source, false);
    #[cfg(feature = "tracing")]
    tracing::info!(source, version, "the rules in force are those of the source again");
}

/// Logs that a file is not watched, only polled.
pub(crate) fn unwatched(path: &Path, reason: &str, interval: Duration) {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        path = %path.display(),
        reason,
        ?interval,
        "the system does not tell of changes of the rules, which are looked at from time to time"
    );
}

/// Logs that the last good rules could not be written.
pub(crate) fn not_kept(path: &Path, error: &dyn Display) {
    #[cfg(feature = "tracing")]
    tracing::warn!(path = %path.display(), %error, "the rules in force could not be kept for the next start");
}

/// Logs that the last good rules could not be used.
pub(crate) fn not_restored(path: &Path, error: &dyn Display) {
    #[cfg(feature = "tracing")]
    tracing::warn!(path = %path.display(), %error, "the rules that were kept for this start cannot be used");
}
