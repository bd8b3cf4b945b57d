//! Whether Redis is asked at all.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ratekeeper_core::{StoreError, StoreErrorKind};
use tokio::sync::watch;

use crate::observe::BreakerWatch;

/// Whether a store is asked, see [`RedisStore::breaker`](crate::RedisStore::breaker).
///
/// On a cluster this describes the whole cluster: it is open as soon as one node that has slots fails. Each
/// node also has its own breaker, so keys on the other nodes are still decided.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum BreakerState {
    /// The store works and is asked; on a cluster, all nodes that have slots do.
    Closed,
    /// The store failed, and is not asked until it works again. Every decision fails immediately, and the
    /// failure policy of each rule applies. On a cluster this holds only for keys on the failing nodes, of
    /// which there is at least one.
    Open {
        /// Since when.
        since: Instant,
        /// What went wrong last.
        error: StoreError,
    },
}

impl BreakerState {
    /// Whether the store, or a node of the cluster, is not asked.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        matches!(self, Self::Open { .. })
    }
}

/// The breaker of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Breaker(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// For a quick check without a lock.
    is_open: AtomicBool,
    /// Nothing is known yet, and the breaker is open only because it has to have a state.
    untried: AtomicBool,
    state: watch::Sender<BreakerState>,
    /// `None` if it stands for the breakers of several servers, which are observed themselves.
    seen: Option<Mutex<BreakerWatch>>,
}

impl Breaker {
    /// The breaker of one server. Open, as nothing is known to work.
    pub(crate) fn new() -> Self {
        Self::with(Some(Mutex::default()))
    }

    /// A breaker that stands for those of several servers.
    pub(crate) fn of_several() -> Self {
        Self::with(None)
    }

    fn with(seen: Option<Mutex<BreakerWatch>>) -> Self {
        let error = StoreError::new(StoreErrorKind::Unavailable).with_source("not connected yet");
        let open = BreakerState::Open { since: Instant::now(), error };
        let (is_open, untried) = (AtomicBool::new(true), AtomicBool::new(true));
        Self(Arc::new(Inner { is_open, untried, state: watch::Sender::new(open), seen }))
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.is_open.load(Ordering::Acquire)
    }

    /// Whether it is not yet known if the server works.
    pub(crate) fn is_untried(&self) -> bool {
        self.0.untried.load(Ordering::Acquire)
    }

    /// The error to answer with, if it is open.
    pub(crate) fn error(&self) -> Option<StoreError> {
        match &*self.0.state.borrow() {
            BreakerState::Closed => None,
            BreakerState::Open { error, .. } => Some(error.clone()),
        }
    }

    pub(crate) fn watch(&self) -> watch::Receiver<BreakerState> {
        self.0.state.subscribe()
    }

    fn see(&self, f: impl FnOnce(&mut BreakerWatch)) {
        if let Some(seen) = &self.0.seen {
            f(&mut seen.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    pub(crate) fn open(&self, error: StoreError) {
        let is_new = self.0.untried.swap(false, Ordering::Relaxed) || !self.is_open();
        self.see(|seen| seen.opened(is_new, &error));
        self.0.state.send_modify(|state| match state {
            BreakerState::Closed => *state = BreakerState::Open { since: Instant::now(), error },
            BreakerState::Open { error: last, .. } => *last = error,
        });
        self.0.is_open.store(true, Ordering::Release);
    }

    pub(crate) fn close(&self) {
        if self.is_open() {
            self.0.is_open.store(false, Ordering::Release);
            // Afterwards, so that nobody takes it for a server that was tried and failed.
            self.0.untried.store(false, Ordering::Release);
            let before = self.0.state.send_replace(BreakerState::Closed);
            if let BreakerState::Open { since, .. } = before {
                self.see(|seen| seen.closed(since.elapsed()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_and_closes_and_remembers_why() {
        let breaker = Breaker::new();
        let watch = breaker.watch();
        assert!(breaker.is_open() && breaker.is_untried() && watch.borrow().is_open());
        breaker.close();
        assert!(!breaker.is_open() && breaker.error().is_none() && !watch.borrow().is_open());
        assert!(!breaker.is_untried());
        breaker.open(StoreError::new(StoreErrorKind::Timeout));
        assert!(breaker.error().is_some_and(|error| error.is_timeout()));
    }
}
