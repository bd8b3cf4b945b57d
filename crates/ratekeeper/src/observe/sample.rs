//! A bounded number of events per second, and how many were left out.

use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper_core::Timestamp;

/// How many events of a kind are let through per second for each rule.
pub(super) const PER_SECOND: u64 = 10;
/// By how many seconds the clocks may differ that date one kind of event: those of several servers, and of
/// this process.
const APART: u64 = 60;

/// Lets a few events of each second through, and counts the others. There is no lock: in a flood, each call
/// just adds one to a number.
#[derive(Debug, Default)]
pub(super) struct Sample {
    /// The second in the upper half, and its number of events in the lower half.
    seen: AtomicU64,
    left_out: AtomicU64,
}

impl Sample {
    /// Whether to emit an event and, if so, how many were left out since the previous one.
    pub(super) fn take(&self, at: Timestamp) -> Option<u64> {
        let second = at.as_micros() / 1_000_000;
        let next = |seen: u64| {
            // An event that is slightly earlier belongs to the second that has begun: otherwise two clocks
            // that take turns would begin a new second with each event. A clock that was set back by more
            // also begins a new second.
            let begun = seen >> 32;
            match second <= begun && begun - second <= APART {
                false => Some(second << 32 | 1),
                true if seen & u64::from(u32::MAX) < PER_SECOND => Some(seen + 1),
                true => None,
            }
        };
        match self.seen.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(_) => Some(self.left_out.swap(0, Ordering::Relaxed)),
            Err(_) => {
                self.left_out.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_leaves_a_few_events_a_second_and_how_many_were_left_out() {
        let sample = Sample::default();
        let at = |second: u64, micros: u64| Timestamp::from_micros(second * 1_000_000 + micros);
        let first: Vec<_> = (0..1_000).filter_map(|i| sample.take(at(7, i))).collect();
        assert_eq!(first, vec![0; PER_SECOND as usize]);
        assert_eq!(sample.take(at(8, 0)), Some(1_000 - PER_SECOND));
        assert_eq!(sample.take(at(8, 1)), Some(0));
        assert_eq!((0..1_000).filter_map(|i| sample.take(at(8, i))).count(), PER_SECOND as usize - 2);
        // The clock was set back.
        let sample = Sample::default();
        assert_eq!((0..1_000).filter_map(|i| sample.take(at(1_000, i))).count(), PER_SECOND as usize);
        assert_eq!(sample.take(at(7, 0)), Some(1_000 - PER_SECOND));
    }

    #[test]
    fn clocks_that_differ_do_not_let_more_through() {
        let sample = Sample::default();
        let at = |second: u64| Timestamp::from_micros(second * 1_000_000);
        let told = (0..1_000).filter_map(|i| sample.take(at(100 + i % 2 * 3))).count();
        assert!(told as u64 <= 2 * PER_SECOND, "{told}");
    }

    #[test]
    fn none_is_lost_between_threads() {
        let sample = Sample::default();
        let (mut events, mut left_out) = (0, 0);
        let counts = std::thread::scope(|scope| {
            let many = || {
                (0..50_000)
                    .filter_map(|i| sample.take(Timestamp::from_micros(i * 100)))
                    .fold((0, 0), |(events, sum), left_out| (events + 1, sum + left_out))
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(many)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<(u64, u64)>>()
        });
        for (more, left) in counts {
            events += more;
            left_out += left;
        }
        left_out += sample.left_out.load(Ordering::Relaxed);
        assert_eq!(events + left_out, 4 * 50_000);
    }
}
