//! What can be wrong with how a store is set up.

use std::error::Error;
use std::fmt;

use redis::RedisError;

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
