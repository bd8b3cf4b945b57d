//! What is known about a limiter and its sets of rules, for periodic checks.

#[cfg(feature = "metrics")]
use std::any::Any;
use std::cell::Cell;
use std::fmt;
#[cfg(feature = "metrics")]
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

#[cfg(feature = "metrics")]
use ratekeeper_core::{Clock, ManualClock, SystemClock};
use ratekeeper_core::{MemoryStore, Store, Timestamp};

use super::Hints;
#[cfg(feature = "metrics")]
use super::metrics::{Figures, OfStores};

/// The interval between checks, in microseconds.
const INTERVAL: u64 = 1_000_000;
/// After how long a rule should have matched something.
const IDLE_AFTER: Duration = Duration::from_secs(3_600);
/// One in this many requests that no rule counts does a check.
const UNCOUNTED: u32 = 1_024;

/// Observes a limiter.
#[derive(Debug)]
pub(crate) struct LimiterWatch {
    /// When the last check was.
    last: AtomicU64,
    /// Whether a request has been marked that may pass through another layer.
    has_marked: AtomicBool,
    pub(crate) hints: Hints,
    #[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "published as metrics"))]
    figures: StoreFigures,
    #[cfg(feature = "metrics")]
    stores: OfStores,
}

impl LimiterWatch {
    pub(crate) fn new(figures: StoreFigures) -> Self {
        Self {
            // As far from any time as possible, so that the first request does a check.
            last: AtomicU64::new(1 << 63),
            has_marked: AtomicBool::new(false),
            hints: Hints::default(),
            figures,
            #[cfg(feature = "metrics")]
            stores: OfStores::default(),
        }
    }

    /// Whether a check is due.
    #[inline]
    pub(crate) fn is_due(&self, at: Timestamp) -> bool {
        // It is also due if the clock was set back, because then the difference wraps around.
        at.as_micros().wrapping_sub(self.last.load(Ordering::Relaxed)) >= INTERVAL
    }

    /// Whether a check may be due after a request that no rule counts.
    pub(crate) fn is_uncounted_due(&self) -> bool {
        thread_local!(static COUNT: Cell<u32> = const { Cell::new(0) });
        COUNT.set(COUNT.get().wrapping_add(1));
        COUNT.get().is_multiple_of(UNCOUNTED)
    }

    /// Whether the caller is to do the check. The next check is due after the interval, or immediately if
    /// `at_once`.
    pub(crate) fn take(&self, at: Timestamp, at_once: bool) -> bool {
        let last = self.last.load(Ordering::Relaxed);
        let next = if at_once { at.as_micros().wrapping_sub(INTERVAL) } else { at.as_micros() };
        at.as_micros().wrapping_sub(last) >= INTERVAL
            && self.last.compare_exchange(last, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn has_marked(&self) -> bool {
        self.has_marked.load(Ordering::Relaxed)
    }

    pub(crate) fn set_marked(&self, has_marked: bool) {
        self.has_marked.store(has_marked, Ordering::Relaxed);
    }

    /// Publishes the figures of the stores in memory.
    pub(crate) fn publish(&self, local: Option<&MemoryStore>) {
        #[cfg(feature = "metrics")]
        self.stores.publish(self.figures.read.as_ref().map(|read| read()), local.map(Figures::of));
        #[cfg(not(feature = "metrics"))]
        let _ = local;
    }
}

/// Observes a set of rules.
#[derive(Debug)]
pub(crate) struct SetWatch {
    /// Since when it has been in force, as far as is known, in microseconds.
    since: AtomicU64,
    /// Set once it was checked for rules that match nothing.
    idle_check: OnceLock<()>,
}

/// For a set that has not been seen in force.
const UNSEEN: u64 = u64::MAX;

impl SetWatch {
    /// The set comes into force, for the first time or again.
    pub(crate) fn put_in_force(&self) {
        self.since.store(UNSEEN, Ordering::Relaxed);
    }

    /// Whether the caller is to check for rules that match nothing: once, when the set has been in force for
    /// long enough.
    pub(crate) fn is_idle_check_due(&self, now: Timestamp) -> bool {
        let since = match self.since.compare_exchange(
            UNSEEN,
            now.as_micros(),
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            Ok(_) => now,
            Err(since) => Timestamp::from_micros(since),
        };
        now.saturating_since(since) >= IDLE_AFTER && self.idle_check.set(()).is_ok()
    }
}

impl Default for SetWatch {
    fn default() -> Self {
        Self { since: AtomicU64::new(UNSEEN), idle_check: OnceLock::new() }
    }
}

impl Clone for SetWatch {
    /// The watch of a new set, about which nothing is known yet.
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// Reads the figures of a store, if it is an in-memory store. The type of a store is known only when it is
/// given to a limiter.
#[derive(Clone)]
pub(crate) struct StoreFigures {
    #[cfg(feature = "metrics")]
    read: Option<Arc<dyn Fn() -> Figures + Send + Sync>>,
}

impl StoreFigures {
    pub(crate) fn of<S: Store>(store: &S) -> Self {
        #[cfg(not(feature = "metrics"))]
        let _ = store;
        Self {
            #[cfg(feature = "metrics")]
            read: read_as::<SystemClock>(store).or_else(|| read_as::<ManualClock>(store)),
        }
    }
}

impl fmt::Debug for StoreFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreFigures")
    }
}

#[cfg(feature = "metrics")]
fn read_as<C: Clock>(store: &dyn Any) -> Option<Arc<dyn Fn() -> Figures + Send + Sync>> {
    let store: MemoryStore<C> = store.downcast_ref::<MemoryStore<C>>()?.clone();
    Some(Arc::new(move || Figures::of(&store)))
}
