//! What can be wrong with how a store is set up.

use std::error::Error;
use std::fmt;

use redis::{ErrorKind, RedisError};
use tollgate_core::{StoreError, StoreErrorKind};

/// A store cannot be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum SetupError {
    /// An address makes no sense. (It is not repeated here, as it may contain a password.)
    Address(RedisError),
    /// No address was given.
    NoServers,
    /// A prefix must be short and printable, and have no braces: those are Redis's.
    Prefix(String),
    /// A duration must not be zero.
    ZeroTimeout,
    /// A store needs a tokio runtime to live in: it was made outside of one.
    NoRuntime,
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(_) => f.write_str("the address of a Redis server makes no sense"),
            Self::NoServers => f.write_str("no Redis server was given"),
            Self::Prefix(prefix) => write!(
                f,
                "the prefix {prefix:?} cannot be used: it must have 1 to 64 printable ASCII characters, and no braces or spaces"
            ),
            Self::ZeroTimeout => f.write_str("a timeout of zero would let nobody in"),
            Self::NoRuntime => f.write_str("a Redis store must be made within a tokio runtime"),
        }
    }
}

impl Error for SetupError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Address(error) => Some(error),
            _ => None,
        }
    }
}

/// What Redis or its client says, as a store says it.
pub(crate) fn failed(error: RedisError) -> StoreError {
    match error.kind() {
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => {
            StoreError::new(StoreErrorKind::Protocol).with_source(error)
        }
        _ => unavailable(error),
    }
}

pub(crate) fn unavailable(source: impl Into<Box<dyn Error + Send + Sync>>) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable).with_source(source)
}
