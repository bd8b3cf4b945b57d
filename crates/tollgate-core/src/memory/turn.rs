//! Whose turn it is to sweep, and what.

use crate::Timestamp;
use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// Gives out the shards to be swept, one at a time, to the calls that come.
#[derive(Debug)]
pub(super) struct Turns {
    every: u64,
    /// When it is time for the next, in microseconds.
    due_at: AtomicU64,
    next: AtomicUsize,
}

impl Turns {
    /// One turn in so many microseconds.
    pub(super) fn new(every: u64) -> Self {
        Self { every, due_at: AtomicU64::new(0), next: AtomicUsize::new(0) }
    }

    /// To be told the time by whoever may be the first to see a clock that was set back: the next turn is not further
    /// away than turns are from each other.
    pub(super) fn it_is(&self, now: Timestamp) {
        let latest = now.as_micros().saturating_add(self.every);
        if self.due_at.load(Ordering::Relaxed) > latest {
            self.due_at.store(now.as_micros(), Ordering::Relaxed);
        }
    }

    /// The number of the shard to sweep, counted on and on, if it is time for one and nobody else has it.
    #[inline]
    pub(super) fn take(&self, now: Timestamp) -> Option<usize> {
        let due_at = self.due_at.load(Ordering::Relaxed);
        if now.as_micros() < due_at { None } else { self.claim(now, due_at) }
    }

    #[cold]
    fn claim(&self, now: Timestamp, due_at: u64) -> Option<usize> {
        let (next, relaxed) = (now.as_micros().saturating_add(self.every), Ordering::Relaxed);
        self.due_at.compare_exchange(due_at, next, relaxed, relaxed).ok()?;
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
        let turns = Turns::new(10);
        assert_eq!(turns.take(at(1_000)), Some(0));
        assert_eq!(turns.take(at(1_009)), None);
        assert_eq!(turns.take(at(1_010)), Some(1));
        // A little late is not set back.
        turns.it_is(at(1_010));
        assert_eq!(turns.take(at(1_015)), None);
        turns.it_is(at(500));
        assert_eq!(turns.take(at(500)), Some(2));
        turns.it_is(at(505));
        assert_eq!(turns.take(at(505)), None);
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
            let turns = Arc::new(Turns::new(10));
            let take = |turns: Arc<Turns>| move || turns.take(Timestamp::from_micros(1_000));
            let others = [(); 2].map(|()| thread::spawn(take(Arc::clone(&turns))));
            let mut taken = vec![take(turns)()];
            taken.extend(others.map(|thread| thread.join().unwrap()));
            assert_eq!(taken.iter().flatten().collect::<Vec<_>>(), [&0], "{taken:?}");
        });
    }
}
