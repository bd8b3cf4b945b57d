//! Why a call failed.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

/// Why a call failed: the inner service's error, or a request that was not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error<E> {
    /// The request would have to wait longer than the patience allows. It was not sent.
    WaitTooLong {
        /// How long it would have to wait, as far as that is known.
        wait: Duration,
    },
    /// Too many other requests are waiting for the budget. It was not sent.
    QueueFull,
    /// The inner service failed.
    Inner(E),
}

impl<E> Error<E> {
    /// How long to wait before another attempt, if that is known.
    #[must_use]
    pub const fn wait(&self) -> Option<Duration> {
        match self {
            Self::WaitTooLong { wait } => Some(*wait),
            Self::QueueFull | Self::Inner(_) => None,
        }
    }

    /// The inner service's error, if it is one.
    pub fn into_inner(self) -> Option<E> {
        match self {
            Self::Inner(error) => Some(error),
            Self::WaitTooLong { .. } | Self::QueueFull => None,
        }
    }
}

impl<E> fmt::Display for Error<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WaitTooLong { wait } => {
                write!(f, "the request was not sent: it would have to wait {:.3} s", wait.as_secs_f64())
            }
            Self::QueueFull => f.write_str("the request was not sent: too many others are waiting"),
            Self::Inner(_) => f.write_str("the request failed"),
        }
    }
}

impl<E: StdError + 'static> StdError for Error<E> {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Inner(error) => Some(error),
            Self::WaitTooLong { .. } | Self::QueueFull => None,
        }
    }
}
