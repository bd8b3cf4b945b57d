//! Which rules are in force, and what is wrong with those that are not.

use std::sync::Arc;
use std::time::SystemTime;

use super::ReloadError;

/// Which rules are in force, since when, and what became of others.
#[derive(Clone, Debug)]
pub struct ReloadStatus {
    pub(super) version: Arc<str>,
    pub(super) rules: usize,
    pub(super) since: SystemTime,
    pub(super) read_at: Option<SystemTime>,
    pub(super) problem: Option<ReloadProblem>,
    pub(super) needs_restart: Arc<[&'static str]>,
    pub(super) applied: u64,
    pub(super) refused: u64,
    pub(super) unread: u64,
}

/// Why the rules in force are not those of the source.
#[derive(Clone, Debug)]
pub struct ReloadProblem {
    pub(super) error: Arc<ReloadError>,
    pub(super) since: SystemTime,
}

impl ReloadStatus {
    /// The version of the rules in force: a digest of their text, after the number that the source gave it,
    /// if it did.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// How many rules are in force.
    #[must_use]
    pub const fn rules(&self) -> usize {
        self.rules
    }

    /// Since when they have been in force here.
    #[must_use]
    pub const fn since(&self) -> SystemTime {
        self.since
    }

    /// When the source was last read, whether or not its rules had changed or were valid; `None` if it has
    /// not been read since the start.
    #[must_use]
    pub const fn read_at(&self) -> Option<SystemTime> {
        self.read_at
    }

    /// Why the rules in force are not those of the source now; `None` if they are.
    #[must_use]
    pub const fn problem(&self) -> Option<&ReloadProblem> {
        self.problem.as_ref()
    }

    /// Settings for the layer and the limiter that have changed since these were built, such as
    /// `layer.ietf-headers`. They take effect at the next start.
    #[must_use]
    pub fn needs_restart(&self) -> &[&'static str] {
        &self.needs_restart
    }

    /// How often rules came into force, including the first ones.
    #[must_use]
    pub const fn applied(&self) -> u64 {
        self.applied
    }

    /// How many sets of rules were refused.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// How often the source could not be read.
    #[must_use]
    pub const fn unread(&self) -> u64 {
        self.unread
    }
}

impl ReloadProblem {
    /// What is wrong.
    #[must_use]
    pub fn error(&self) -> &ReloadError {
        &self.error
    }

    /// When it was first found. What is wrong with the source may have changed since then, but it has not
    /// been right.
    #[must_use]
    pub const fn since(&self) -> SystemTime {
        self.since
    }
}
