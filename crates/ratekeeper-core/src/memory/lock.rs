//! The lock of a shard.

use std::hint::spin_loop;
use std::thread::yield_now;

use spin::RelaxStrategy;
use spin::mutex::{SpinMutex, SpinMutexGuard};

/// A lock that spins.
///
/// It is held for some ten nanoseconds, several times less than it takes to put a thread to sleep and wake
/// it. It is released by a plain store, whereas a lock that threads sleep on has to check whether one does.
/// With one key and two threads that was 30 against 46 nanoseconds per decision.
///
/// The holder may lose its processor while it holds the lock, or may have to grow a table. So a waiting
/// thread spins a little and then yields its own processor, again and again.
pub(super) struct Lock<T>(SpinMutex<T, Yield>);

pub(super) type Guard<'a, T> = SpinMutexGuard<'a, T, Yield>;

/// How often to spin before yielding the processor.
const SPINS: usize = 8;

pub(super) struct Yield;

impl RelaxStrategy for Yield {
    fn relax() {
        for _ in 0..SPINS {
            spin_loop();
        }
        yield_now();
    }
}

impl<T> Lock<T> {
    pub(super) const fn new(value: T) -> Self {
        Self(SpinMutex::new(value))
    }

    #[inline]
    pub(super) fn lock(&self) -> Guard<'_, T> {
        match self.0.try_lock() {
            Some(guard) => guard,
            None => self.wait(),
        }
    }

    #[cold]
    fn wait(&self) -> Guard<'_, T> {
        self.0.lock()
    }

    #[inline]
    pub(super) fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.0.try_lock()
    }
}
