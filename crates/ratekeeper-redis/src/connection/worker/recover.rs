//! Gets a failed server back.

use std::sync::Arc;

use ratekeeper_core::{StoreError, StoreErrorKind};
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Worker;
use crate::batch::server_time::ServerTime;
use crate::connection::breaker::Pauses;
use crate::connection::eviction_policy;
use crate::connection::probe::{Probed, probe};
use crate::error::failed;
use crate::observe;

impl Worker {
    /// Tries until the server works again; `false` if it is no longer needed.
    pub(super) async fn recover(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let trying = async {
            let mut pauses = Pauses::new(self.config.longest_pause);
            while let Err(error) = self.probe().await {
                self.shared.breaker.open(error);
                // It refuses everything, so the settlements that it has refused are not to blame.
                self.shared.queue().absolve();
                tokio::select! {
                    () = sleep(pauses.next()) => {}
                    // It may work now, or in a moment.
                    () = self.shared.retry.notified() => pauses = Pauses::new(self.config.longest_pause),
                }
            }
            self.shared.breaker.close();
        };
        tokio::select! {
            () = trying => true,
            () = shared.closed() => false,
        }
    }

    /// Connects again while requests wait, for no longer than until the first of them stops waiting.
    pub(super) async fn reconnect(&mut self) -> Result<(), StoreError> {
        self.connection = None;
        let shared = Arc::clone(&self.shared);
        let latest = Instant::now() + self.config.timeout;
        let probing = self.probe();
        tokio::pin!(probing);
        loop {
            let until = {
                let mut queue = shared.queue();
                let until = queue.next_deadline().map_or(latest, |deadline| deadline.min(latest));
                queue.alarm = Some(until);
                until
            };
            tokio::select! {
                connected = &mut probing => {
                    shared.queue().alarm = None;
                    return connected;
                }
                () = sleep_until(until) => return Err(slow("Redis has closed the connection, and a new one takes long")),
                () = shared.hurry.notified() => {}
            }
        }
    }

    /// Connects if need be, and checks whether the server does what is needed, and fast enough.
    async fn probe(&mut self) -> Result<(), StoreError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                let mut connection =
                    self.target.connect(self.config.connect_timeout).await.map_err(failed)?;
                // It may be another server, with another clock.
                self.time = ServerTime::new();
                self.tell_of_eviction(&mut connection).await;
                connection
            }
        };
        let probing = probe(&mut connection, &self.config, self.probed.as_ref());
        match timeout(self.config.silence(), probing).await {
            Ok(Ok(Probed { now, sent })) => {
                self.time.learn(now, sent, Instant::now());
                self.connection = Some(connection);
                self.load_scripts = false;
                // A request that came now would not be answered in time.
                let took = sent.elapsed();
                if took > self.config.timeout {
                    return Err(slow("Redis answers, but takes longer than a decision may"));
                }
                (self.usual, self.heard) = (took, Instant::now());
                self.pace.is_connected(took);
                Ok(())
            }
            // Read-only, out of memory, still loading: perhaps another server works, perhaps this one does
            // later.
            Ok(Err(error)) => Err(failed(error)),
            Err(_) => Err(slow("Redis does not answer")),
        }
    }

    /// Reports once if the server evicts counters, while nobody waits for it. The server is used whatever it
    /// answers. If something on the way breaks the connection because of the question, it is not asked again.
    async fn tell_of_eviction(&mut self, connection: &mut MultiplexedConnection) {
        if !observe::TELLS_OF_EVICTION || std::mem::replace(&mut self.asked_of_eviction, true) {
            return;
        }
        let asked = timeout(self.config.connect_timeout, eviction_policy::policy(connection)).await;
        if let Ok(Ok(Some(policy))) = asked {
            observe::evicts(&policy);
        }
    }
}

fn slow(why: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Timeout).with_source(why)
}
