//! What operators see of the store: metrics and events, each behind a feature.
//!
//! Without the features nothing of it is compiled.

#[cfg(feature = "tracing")]
mod events;
#[cfg(feature = "metrics")]
mod metrics;

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{Decision, StoreError};

/// Whether an evicting server is reported to anybody.
pub(crate) const REPORTS_EVICTION: bool = cfg!(feature = "tracing");

/// Reports that a server evicts counters when its memory is full, by this policy.
pub(crate) fn evicts(policy: &str) {
    #[cfg(feature = "tracing")]
    events::evicts(policy);
    let _ = policy;
}

/// Reports that the script has decided otherwise than the algorithm, and of which counters.
#[cold]
pub(crate) fn disagrees<'a>(admitted: bool, counters: impl Iterator<Item = &'a [u8]>) {
    #[cfg(feature = "tracing")]
    events::disagrees(admitted, counters);
    #[cfg(not(feature = "tracing"))]
    let _ = (admitted, counters);
}

/// What is observed of a store.
#[derive(Debug, Default)]
pub(crate) struct StoreWatch {
    #[cfg(feature = "metrics")]
    handles: metrics::Handles,
}

impl StoreWatch {
    /// A request was denied without asking Redis.
    #[inline]
    pub(crate) fn denied_from_memory(&self) {
        #[cfg(feature = "metrics")]
        self.handles.denied_from_memory();
    }

    /// A request failed without asking Redis, because Redis fails.
    #[cold]
    pub(crate) fn refused(&self) {
        #[cfg(feature = "metrics")]
        metrics::error("breaker_open");
    }

    /// This many requests go to Redis together.
    pub(crate) fn sent(&self, requests: usize) {
        #[cfg(feature = "metrics")]
        self.handles.sent(requests);
        #[cfg(not(feature = "metrics"))]
        let _ = requests;
    }

    /// Redis is asked.
    pub(crate) fn ask(self: &Arc<Self>) -> Asked {
        Asked {
            #[cfg(feature = "metrics")]
            since: std::time::Instant::now(),
            #[cfg(feature = "metrics")]
            watch: Arc::clone(self),
        }
    }
}

/// A question to Redis that is under way.
#[derive(Debug)]
pub(crate) struct Asked {
    #[cfg(feature = "metrics")]
    since: std::time::Instant,
    #[cfg(feature = "metrics")]
    watch: Arc<StoreWatch>,
}

impl Asked {
    /// Redis has answered, or has failed to.
    pub(crate) fn answered(self, answer: Result<Decision, StoreError>) -> Result<Decision, StoreError> {
        #[cfg(feature = "metrics")]
        self.watch.handles.answered(self.since.elapsed(), answer.as_ref().err());
        answer
    }
}

/// What is observed of the breaker of one server.
#[derive(Debug, Default)]
pub(crate) struct BreakerWatch {
    #[cfg(feature = "metrics")]
    open: Option<metrics::Open>,
    #[cfg(feature = "tracing")]
    sample: events::Sample,
}

impl BreakerWatch {
    /// The breaker is open, either newly or still.
    pub(crate) fn opened(&mut self, is_new: bool, error: &StoreError) {
        #[cfg(feature = "metrics")]
        metrics::opened(&mut self.open, is_new);
        #[cfg(feature = "tracing")]
        if is_new {
            self.sample.opened(error);
        }
        let _ = (is_new, error);
    }

    /// The breaker is closed again after this long.
    pub(crate) fn closed(&mut self, was_open: Duration) {
        #[cfg(feature = "metrics")]
        metrics::closed(&mut self.open);
        #[cfg(feature = "tracing")]
        self.sample.closed(was_open);
        let _ = was_open;
    }
}

/// How many requests wait in the line of one server.
#[derive(Debug, Default)]
pub(crate) struct QueueWatch {
    #[cfg(feature = "metrics")]
    queue: metrics::Queue,
}

impl QueueWatch {
    pub(crate) fn waiting(&mut self, waiting: usize) {
        #[cfg(feature = "metrics")]
        self.queue.waiting(waiting);
        #[cfg(not(feature = "metrics"))]
        let _ = waiting;
    }
}
