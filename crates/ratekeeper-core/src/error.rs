//! The error of a store that cannot decide.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// A store could not decide. This is never a denial: a denial is a [`Decision`](crate::Decision).
///
/// Cheap to clone, so that one failure can be given to every request that waited for it.
#[derive(Clone, Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// Why a store could not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The store did not answer before the deadline.
    Timeout,
    /// The store cannot be reached, or refuses to work.
    Unavailable,
    /// The store answered with something that is not a valid answer.
    Protocol,
}

impl StoreError {
    /// An error of this kind, without a cause.
    #[must_use]
    pub const fn new(kind: StoreErrorKind) -> Self {
        Self { kind, source: None }
    }

    /// This error, with its cause.
    #[must_use]
    pub fn with_source(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { source: Some(Arc::from(source.into())), ..self }
    }

    /// Why the store could not decide.
    #[must_use]
    pub const fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether the store did not answer in time.
    #[must_use]
    pub const fn is_timeout(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Timeout)
    }

    /// Whether the store cannot be reached, or refuses to work.
    #[must_use]
    pub const fn is_unavailable(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Unavailable)
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            StoreErrorKind::Timeout => "the store did not answer in time",
            StoreErrorKind::Unavailable => "the store is unavailable",
            StoreErrorKind::Protocol => "the store gave an answer that makes no sense",
        })
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}
