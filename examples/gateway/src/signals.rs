//! What the system tells the gateway.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT: to end.
#[derive(Debug)]
pub(crate) struct Ending {
    terminate: Signal,
    interrupt: Signal,
}

impl Ending {
    /// Listens from here on.
    ///
    /// # Errors
    ///
    /// When the system does not let it.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next of them, and says which it is.
    pub(crate) async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
