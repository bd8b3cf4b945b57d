//! How long things may take, and how far an exchange has come.

mod progress;
mod timed;

use std::time::Duration;

pub(crate) use self::progress::{Progress, Upload};
pub(crate) use self::timed::{Direction, Timed};

/// How long the parts of an exchange may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// Until the upstream begins its answer, once it has the request.
    pub(crate) response: Duration,
    /// While a body stands still.
    pub(crate) idle: Duration,
    /// All of it.
    pub(crate) request: Option<Duration>,
}

#[cfg(test)]
mod tests;
