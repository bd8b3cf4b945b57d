//! Gets a failed server back.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ratekeeper_core::{StoreError, StoreErrorKind};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Worker;
use crate::batch::server_time::ServerTime;
use crate::connection::backoff::Backoff;
use crate::connection::eviction_policy;
use crate::connection::probe::{Probed, probe};
use crate::connection::socket::Socket;
use crate::error::failed;
use crate::observe;

/// Longer than anything takes.
const A_DAY: Duration = Duration::from_secs(86_400);

impl Worker {
    /// Tries until the server works again; `false` if it is no longer needed.
    pub(super) async fn recover(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let trying = async {
            let mut backoff = Backoff::new(self.config.max_backoff);
            while let Err(error) = self.probe().await {
                self.shared.breaker.open(error);
                // It refuses everything, so the settlements that it has refused are not to blame.
                self.shared.queue().reset_attempts();
                tokio::select! {
                    () = sleep(backoff.next()) => continue,
                    () = self.shared.leave.notified() => self.leaving = true,
                    () = self.shared.retry.notified() => {}
                }
                // It may work now, or in a moment.
                backoff = Backoff::new(self.config.max_backoff);
            }
            self.shared.breaker.close();
        };
        tokio::select! {
            () = trying => true,
            () = shared.closed() => false,
        }
    }

    /// Connects again. Fails as soon as the deadline of a request that waits for the connection passes: no
    /// other request could wait for it either.
    pub(super) async fn reconnect(&mut self) -> Result<(), StoreError> {
        self.socket = None;
        let shared = Arc::clone(&self.shared);
        let probing = self.probe();
        tokio::pin!(probing);
        loop {
            let until = {
                let mut queue = shared.queue();
                queue.alarm = Some(queue.next_deadline().unwrap_or_else(|| Instant::now() + A_DAY));
                queue.alarm
            };
            tokio::select! {
                connected = &mut probing => {
                    shared.queue().alarm = None;
                    return connected;
                }
                () = sleep_until(until.unwrap_or_else(Instant::now)) => {
                    return Err(slow("a new connection to Redis takes longer than a decision may"));
                }
                () = shared.hurry.notified() => {}
                () = shared.wake.notified() => {}
            }
        }
    }

    /// Connects if need be, and checks whether the server does what is needed, and fast enough.
    async fn probe(&mut self) -> Result<(), StoreError> {
        if std::mem::take(&mut self.leaving) {
            self.socket = None;
        }
        let mut socket = match self.socket.take() {
            Some(socket) => socket,
            None => self.connect().await?,
        };
        let probing = socket
            .run(async |connection: &mut _| probe(connection, &self.config, self.probed.as_ref()).await);
        match timeout(self.config.silence(), probing).await {
            Ok(Ok(Probed { now, sent, took })) => {
                self.time.learn(now, sent, sent + took);
                self.socket = Some(socket);
                self.scripts_missing = false;
                // A request that came now would not be answered in time.
                if took > self.config.timeout {
                    return Err(slow("Redis answers, but takes longer than a decision may"));
                }
                self.heard = Instant::now();
                self.sizing.connected(took);
                Ok(())
            }
            // Read-only, out of memory, still loading: perhaps another server works, perhaps this one does
            // later.
            Ok(Err(error)) => Err(failed(error)),
            Err(_) => Err(slow("Redis does not answer")),
        }
    }

    async fn connect(&mut self) -> Result<Socket, StoreError> {
        let (mut socket, server) = self.target.connect(self.config.connect_timeout).await.map_err(failed)?;
        *self.shared.server.lock().unwrap_or_else(PoisonError::into_inner) = server;
        // It may be another server, with another clock.
        self.time = ServerTime::new();
        self.report_eviction(&mut socket).await;
        Ok(socket)
    }

    /// Reports once if the server evicts counters, while nobody waits for it. The server is used whatever it
    /// answers. If something on the way breaks the connection because of the question, it is not asked again.
    async fn report_eviction(&mut self, socket: &mut Socket) {
        if !observe::REPORTS_EVICTION || std::mem::replace(&mut self.checked_eviction, true) {
            return;
        }
        let asking = socket.run(eviction_policy::policy);
        let asked = timeout(self.config.connect_timeout, asking).await;
        if let Ok(Ok(Some(policy))) = asked {
            observe::evicts(&policy);
        }
    }
}

fn slow(why: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Timeout).with_source(why)
}
