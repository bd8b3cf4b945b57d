//! Turns a count into the time.

use crate::sync::{AtomicI64, Ordering};

/// If the time is ahead of the system's clock by more than this, in microseconds, that clock was set back.
const STEP: u64 = 1_000;

/// What to add to a count of microseconds to get the time since the Unix epoch. Negative if the count began
/// before the epoch, according to a clock that nobody has set yet.
///
/// A single number, so that every thread that reads it gets a valid time, whatever the others do.
#[derive(Debug)]
pub(super) struct Offset(AtomicI64);

impl Offset {
    pub(super) fn new() -> Self {
        Self(AtomicI64::new(0))
    }

    #[inline]
    pub(super) fn time(&self, counted: u64) -> u64 {
        counted.wrapping_add_signed(self.0.load(Ordering::Relaxed))
    }

    /// Compares the count with the system's clock, which was read between the two counts.
    ///
    /// The thread may have been paused anywhere in between. So "behind" is judged by the count after and
    /// "ahead" by the count before: then neither can be caused by a pause. If several threads compare at
    /// once, the one that was paused least wins, whichever comes last. So the time steps back only if the
    /// system's clock does.
    pub(super) fn correct(&self, before: u64, system: u64, after: u64) {
        let offset = system.wrapping_sub(after) as i64;
        if self.time(before) > system.saturating_add(STEP) {
            self.0.store(offset, Ordering::Relaxed);
        } else {
            self.0.fetch_max(offset, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn being_behind_is_mended_and_being_a_little_ahead_is_borne() {
        let offset = Offset::new();
        offset.correct(100, 5_000, 100);
        assert_eq!(offset.time(100), 5_000);
        offset.correct(200, 5_300, 200);
        assert_eq!(offset.time(200), 5_300);
        offset.correct(300, 5_200, 300);
        assert_eq!(offset.time(300), 5_400, "the count is ahead by 200, and waits for the system's clock");
    }

    #[test]
    fn a_clock_that_was_set_back_is_followed_and_a_pause_is_not() {
        let offset = Offset::new();
        offset.correct(100, 10_000, 100);
        // Paused for long between reading the system's clock and the count after it.
        offset.correct(200, 10_100, 9_000);
        assert_eq!(offset.time(9_000), 18_900);
        offset.correct(9_000, 12_000, 9_000);
        assert_eq!(offset.time(9_000), 12_000);
    }

    /// As on a board that does not keep the time while it is off, until its clock is set.
    #[test]
    fn a_count_that_began_before_the_epoch_follows_the_clock_when_it_is_set() {
        let offset = Offset::new();
        offset.correct(9_000_000, 5_000_000, 9_000_000);
        assert_eq!(offset.time(9_000_000), 5_000_000);
        offset.correct(9_010_000, 1_790_000_000_010_000, 9_010_000);
        assert_eq!(offset.time(9_020_000), 1_790_000_000_020_000);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    /// However threads that compare at once interfere, and however long each is paused, nobody sees the time
    /// step back.
    #[test]
    fn loom_time_does_not_step_back_while_threads_compare() {
        loom::model(|| {
            let offset = Arc::new(Offset::new());
            offset.correct(0, 10_000, 0);
            // Both read the same clock, which is 50 ahead of the count; one of them was paused for 40.
            let held_up = [0, 40].map(|pause| {
                let offset = Arc::clone(&offset);
                thread::spawn(move || offset.correct(100, 10_150, 100 + pause))
            });
            let mut last = offset.time(200);
            for _ in 0..2 {
                let now = offset.time(200);
                assert!(now >= last, "{now} after {last}");
                last = now;
            }
            held_up.into_iter().for_each(|thread| thread.join().unwrap());
            assert_eq!(offset.time(200), 10_250, "the better of the two counts");
        });
    }
}
