//! How long things may take, and how far an exchange has progressed.

mod progress;
mod timed;

use std::time::Duration;

pub(crate) use self::progress::{Progress, Upload};
pub(crate) use self::timed::{Direction, Timed};

/// How long the parts of an exchange may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// Until the upstream begins its response, once it has the request.
    pub(crate) response: Duration,
    /// While a body stands still.
    pub(crate) idle: Duration,
    /// The whole exchange.
    pub(crate) request: Option<Duration>,
}

#[cfg(test)]
mod tests;
