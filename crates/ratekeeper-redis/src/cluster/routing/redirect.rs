//! Sends requests to the node where they belong.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use tokio::time::{Instant, sleep, timeout_at};

use super::Router;
use crate::cluster::topology::slot_map::Address;
use crate::connection::Connection;
use crate::error::unavailable;
use crate::request::Ask;

/// How often a request may be redirected.
const REDIRECTS: u8 = 8;
/// How long a request waits for a slot that is between two nodes.
const SLOT_PAUSE: Duration = Duration::from_millis(1);

impl Router {
    /// Sends a request to where the node on this host says that it belongs.
    pub(super) fn redirect(self: &Arc<Self>, mut ask: Ask, error: &RedisError, host: &str) {
        ask.redirects += 1;
        let settles = ask.settlement().is_some();
        if ask.redirects > REDIRECTS && settles {
            self.wanted.notify_one();
            return self.keep_unrouted(ask);
        }
        if ask.redirects > REDIRECTS || (ask.deadline <= Instant::now() && !settles) {
            return ask.fail(&unavailable(error.clone()));
        }
        // A slot that is moving still belongs to the same node.
        if !matches!(error.kind(), ErrorKind::Server(ServerErrorKind::Ask | ServerErrorKind::TryAgain)) {
            self.wanted.notify_one();
        }
        let target = error.redirect_node().and_then(|(address, slot)| Some((parse(address, host)?, slot)));
        let connection = match (error.kind(), target) {
            (ErrorKind::Server(ServerErrorKind::Moved), Some((address, slot))) => {
                ask.asking = false;
                self.map.write().unwrap_or_else(PoisonError::into_inner).set(slot, &address);
                Some(self.connect_to(&address))
            }
            // Some of its counters are on this node and some on the other, until the slot has moved. (If one
            // of several counters is not here, Redis before 7 says that all are there.)
            (ErrorKind::Server(ServerErrorKind::Ask | ServerErrorKind::TryAgain), _)
                if ask.is_divisible() =>
            {
                return ask.divide();
            }
            // The error may be due to counters of requests that it shared a call with. From now on it goes
            // alone.
            (ErrorKind::Server(ServerErrorKind::Ask | ServerErrorKind::TryAgain), _)
                if ask.redirects == 1 =>
            {
                ask.asking = false;
                self.connection(ask.slot())
            }
            (ErrorKind::Server(ServerErrorKind::Ask), Some((address, _))) => {
                ask.asking = true;
                let connection = self.connect_to(&address);
                if let Some(node) = self.nodes().get_mut(&address) {
                    node.asked = Some(Instant::now());
                }
                Some(connection)
            }
            // The slot is between two nodes, or the address of its node is not known. A moment later it may
            // be.
            _ => None,
        };
        match connection {
            // (The connection keeps settlements.)
            Some(connection) if connection.refuses().is_none() || settles => connection.put(ask),
            connection => self.put_when_possible(connection, ask),
        }
    }

    /// Puts something in line later, when that is possible, unless too many wait already.
    pub(super) fn put_when_possible(self: &Arc<Self>, connection: Option<Connection>, ask: Ask) {
        match Arc::clone(&self.parked).try_acquire_owned() {
            Ok(place) => {
                let router = Arc::clone(self);
                self.runtime.spawn(async move {
                    router.wait_for_node(connection, ask).await;
                    drop(place);
                });
            }
            Err(_) if ask.settlement().is_some() => self.keep_unrouted(ask),
            Err(_) => ask.fail(&unavailable("too many requests wait for slots that are on their way")),
        }
    }

    /// Waits for a new node to be connected, or for a slot to have a node, as long as there is time.
    async fn wait_for_node(self: Arc<Self>, connection: Option<Connection>, mut ask: Ask) {
        let Some(connection) = connection else {
            sleep(SLOT_PAUSE).await;
            ask.asking = false;
            return self.put(ask);
        };
        let mut states = connection.breaker().watch();
        // A request that another node sent there may wait until the node works, others only until it is known
        // whether it does.
        let is_sent = ask.redirects > 0;
        let works =
            states.wait_for(|state| !state.is_open() || !(is_sent || connection.breaker().is_untried()));
        // The connection always answers; if it is too late, it says so.
        drop(timeout_at(ask.deadline, works).await);
        connection.put(ask);
    }
}

/// The address of a node as it appears in an error: `host:port`, or `:port` if it is on the same host as the
/// node that reports it. `None` if that node does not know the host: then the next refresh of the slot map
/// finds it.
fn parse(address: &str, same: &str) -> Option<Address> {
    let (host, port) = address.rsplit_once(':').filter(|(host, _)| *host != "?")?;
    let host = if host.is_empty() { same } else { host };
    Some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_lack_its_host() {
        for (address, read) in [
            ("a:7", Some(("a", 7))),
            ("::1:7", Some(("::1", 7))),
            (":7", Some(("same", 7))),
            ("?:7", None),
            ("a", None),
            ("a:b", None),
            ("", None),
        ] {
            let read = read.map(|(host, port): (&str, u16)| (host.to_owned(), port));
            assert_eq!(parse(address, "same"), read, "{address}");
        }
    }
}
