//! What is seen of a limiter as a whole, now and then.

#[cfg(feature = "metrics")]
use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(feature = "metrics")]
use tollgate_core::{ManualClock, MemoryStore, SystemClock};
use tollgate_core::{Store, Timestamp};

use crate::limiter::Limiter;

#[cfg(feature = "metrics")]
use super::metrics::{Figures, OfStores};

/// How often it is looked around, in microseconds.
const PAUSE: u64 = 1_000_000;

/// What is seen of a limiter. Requests look around in passing, one in a second: there is no task.
#[derive(Debug)]
pub(crate) struct LimiterWatch {
    /// When it was last looked around.
    last: AtomicU64,
    #[cfg(feature = "metrics")]
    stores: OfStores,
}

impl LimiterWatch {
    pub(crate) fn new() -> Self {
        Self {
            // As far from any time as can be, so that the first request looks.
            last: AtomicU64::new(1 << 63),
            #[cfg(feature = "metrics")]
            stores: OfStores::default(),
        }
    }

    /// Whether it is time to look around.
    #[inline(always)]
    pub(crate) fn is_due(&self, at: Timestamp) -> bool {
        // It is as well if the clock was set back, as the difference wraps around then.
        at.as_micros().wrapping_sub(self.last.load(Ordering::Relaxed)) >= PAUSE
    }

    /// Whether it is this one's turn to look around.
    fn take(&self, at: Timestamp) -> bool {
        let last = self.last.load(Ordering::Relaxed);
        at.as_micros().wrapping_sub(last) >= PAUSE
            && self.last.compare_exchange(last, at.as_micros(), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl<S: Store> Limiter<S> {
    /// Looks around, if it is time.
    #[inline]
    pub(crate) fn glance(&self, at: Timestamp) {
        if self.watch().is_due(at) {
            self.look_around(at);
        }
    }

    #[cold]
    pub(crate) fn look_around(&self, at: Timestamp) {
        if !self.watch().take(at) {
            return;
        }
        #[cfg(feature = "metrics")]
        self.watch().stores.publish(figures(self.store()), self.local_store().map(Figures::of));
    }
}

/// What a store says of itself, if it is one in memory.
#[cfg(feature = "metrics")]
fn figures<S: Store>(store: &S) -> Option<Figures> {
    let store = store as &dyn Any;
    let system = || store.downcast_ref::<MemoryStore<SystemClock>>().map(Figures::of);
    let manual = || store.downcast_ref::<MemoryStore<ManualClock>>().map(Figures::of);
    system().or_else(manual)
}
