//! When to sweep, which call does it, and which shard.

use crate::Timestamp;
use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// Hands out the shards to be swept, one at a time, to incoming calls.
#[derive(Debug)]
pub(super) struct Sweeps {
    /// How far the clock may be ahead of `before` without a turn being due, in microseconds, negated
    /// (wrapping).
    not_due_from: u64,
    /// The microsecond before the last turn was taken.
    before: AtomicU64,
    next: AtomicUsize,
}

impl Sweeps {
    /// One turn every `every` microseconds.
    pub(super) fn new(every: u64) -> Self {
        Self { not_due_from: every.wrapping_neg(), before: AtomicU64::new(0), next: AtomicUsize::new(0) }
    }

    /// The number of the turn, if one is due and no other call has taken it. Sweeps are numbered
    /// consecutively; the number modulo that of the shards gives the shard to sweep.
    #[inline]
    pub(super) fn take(&self, now: Timestamp) -> Option<usize> {
        if self.is_due(self.before.load(Ordering::Relaxed), now) { self.claim(now) } else { None }
    }

    /// Whether another turn is due, given the microsecond before the last one.
    #[inline(always)]
    const fn is_due(&self, before: u64, now: Timestamp) -> bool {
        // Wrapping: if the last turn was taken less than the interval ago, the difference is slightly below
        // zero, which wraps to the largest numbers. A clock that was set back counts as a long time as well.
        before.wrapping_sub(now.as_micros()) < self.not_due_from
    }

    #[cold]
    fn claim(&self, now: Timestamp) -> Option<usize> {
        let (taken, relaxed) = (now.as_micros().wrapping_sub(1), Ordering::Relaxed);
        // Read again, so that the common path, without a turn, need not keep the value.
        let before = self.before.load(relaxed);
        if !self.is_due(before, now) {
            return None;
        }
        self.before.compare_exchange(before, taken, relaxed, relaxed).ok()?;
        Some(self.next.fetch_add(1, relaxed))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn at(micros: u64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    #[test]
    fn turns_come_one_at_a_time_and_also_after_the_clock_was_set_back() {
        let sweeps = Sweeps::new(10);
        assert_eq!(sweeps.take(at(1_000)), Some(0));
        assert_eq!(sweeps.take(at(1_009)), None);
        assert_eq!(sweeps.take(at(1_010)), Some(1));
        assert_eq!(sweeps.take(at(1_010)), None);
        assert_eq!(sweeps.take(at(1_019)), None);
        assert_eq!(sweeps.take(at(500)), Some(2));
        assert_eq!(sweeps.take(at(505)), None);
        assert_eq!(sweeps.take(at(0)), Some(3));
        assert_eq!(sweeps.take(at(9)), None);
        assert_eq!(sweeps.take(at(u64::MAX)), Some(4));
        assert_eq!(sweeps.take(at(u64::MAX)), None);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    #[test]
    fn loom_of_several_who_come_at_once_one_has_the_turn() {
        loom::model(|| {
            let sweeps = Arc::new(Sweeps::new(10));
            let take = |sweeps: Arc<Sweeps>| move || sweeps.take(Timestamp::from_micros(1_000));
            let others = [(); 2].map(|()| thread::spawn(take(Arc::clone(&sweeps))));
            let mut taken = vec![take(sweeps)()];
            taken.extend(others.map(|thread| thread.join().unwrap()));
            assert_eq!(taken.iter().flatten().collect::<Vec<_>>(), [&0], "{taken:?}");
        });
    }
}
