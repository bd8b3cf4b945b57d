//! Where a store gets the time.

mod offset;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use self::offset::Offset;
use crate::Timestamp;
use crate::sync::{AtomicU64, Ordering};

/// A clock.
///
/// It may step back, as clocks do when they are set: the algorithms handle that.
pub trait Clock: Send + Sync + 'static {
    /// The time.
    fn now(&self) -> Timestamp;
}

/// How often the counter is compared with the system's clock, in microseconds.
const SYNC_EVERY: u64 = 10_000;
/// By how much the counter is assumed to run too fast, in millionths.
///
/// Because it is counted a little too slowly, the time is always corrected forwards, by a few microseconds at
/// each comparison. It steps back only when the system's clock does.
const SLOW: u64 = 200;

/// The system's clock, read through the processor's time-stamp counter.
///
/// Asking the system costs more than an entire decision in memory. So the system is asked a hundred times a
/// second, and the counter is read in between.
#[derive(Clone)]
pub struct SystemClock {
    counter: quanta::Clock,
    /// Microseconds per tick of the counter, in parts of 2^64.
    micros_per_tick: u64,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    offset: Offset,
    /// The counter's microseconds at which the next comparison is due.
    next_sync: AtomicU64,
}

impl SystemClock {
    /// The system's clock.
    #[must_use]
    pub fn new() -> Self {
        let counter = quanta::Clock::new();
        let nanos = u128::from(counter.delta_as_nanos(1, 1 + (1 << 40)));
        let per_tick = (nanos << 24) / 1_000;
        let micros_per_tick = per_tick - per_tick * u128::from(SLOW) / 1_000_000;
        let clock = Self {
            counter,
            micros_per_tick: u64::try_from(micros_per_tick).unwrap_or(u64::MAX),
            shared: Arc::new(Shared { offset: Offset::new(), next_sync: AtomicU64::new(0) }),
        };
        clock.sync();
        clock
    }

    #[inline]
    fn counted(&self) -> u64 {
        ((u128::from(self.counter.raw()) * u128::from(self.micros_per_tick)) >> 64) as u64
    }

    #[cold]
    fn sync(&self) {
        let before = self.counted();
        let Ok(system) = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) else {
            return;
        };
        let system = u64::try_from(system.as_micros()).unwrap_or(u64::MAX);
        let after = self.counted();
        self.shared.offset.correct(before, system, after);
        self.shared.next_sync.store(after + SYNC_EVERY, Ordering::Relaxed);
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Timestamp {
        let counted = self.counted();
        if counted >= self.shared.next_sync.load(Ordering::Relaxed) {
            self.sync();
        }
        Timestamp::from_micros(self.shared.offset.time(counted))
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SystemClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SystemClock").field(&self.now()).finish()
    }
}

/// A clock that stands still until it is moved, for tests.
///
/// Clones are the same clock.
///
/// ```
/// use std::time::Duration;
/// use ratekeeper_core::{Clock, ManualClock, Timestamp};
///
/// let clock = ManualClock::new(Timestamp::from_secs(1_000));
/// clock.advance(Duration::from_secs(5));
/// assert_eq!(clock.now(), Timestamp::from_secs(1_005));
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock that stands at `now`.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self(Arc::new(AtomicU64::new(now.as_micros())))
    }

    /// Sets the clock, forwards or back.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.as_micros(), Ordering::SeqCst);
    }

    /// Moves the clock forwards.
    pub fn advance(&self, by: Duration) {
        let by = Timestamp::UNIX_EPOCH.saturating_add(by).as_micros();
        self.0.fetch_add(by, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn system_micros() -> u64 {
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros() as u64
    }

    #[test]
    fn the_system_clock_keeps_to_the_systems_time() {
        let clock = SystemClock::new();
        let started = system_micros();
        while system_micros() < started + 3 * SYNC_EVERY {
            let before = system_micros();
            let now = clock.now().as_micros();
            let after = system_micros();
            assert!(now + 2_000 > before && now < after + 2_000, "{before} {now} {after}");
        }
    }

    #[test]
    fn the_system_clock_does_not_step_back_by_itself() {
        let clock = SystemClock::new();
        let started = system_micros();
        let mut last = clock.now();
        while system_micros() < started + 3 * SYNC_EVERY {
            let now = clock.now();
            assert!(now >= last, "{last} {now}");
            last = now;
        }
    }
}
