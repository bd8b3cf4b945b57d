//! So many events in a second, and how many were left out.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::Timestamp;

/// How many events of a kind there are in a second for each rule.
pub(super) const PER_SECOND: u64 = 10;

/// Lets a few events of each second through, and counts the others. Without a lock: whoever is in a flood does no more
/// than add one to a number.
#[derive(Debug, Default)]
pub(super) struct Sample {
    /// The second in the upper half, and how many it has had in the lower.
    seen: AtomicU64,
    left_out: AtomicU64,
}

impl Sample {
    /// Whether there is to be an event, and if so, how many were left out since the one before.
    pub(super) fn take(&self, at: Timestamp) -> Option<u64> {
        let second = (at.as_micros() / 1_000_000) << 32;
        let next = |seen: u64| match seen & !u64::from(u32::MAX) == second {
            // A clock that steps back begins another second as well.
            false => Some(second | 1),
            true if seen & u64::from(u32::MAX) < PER_SECOND => Some(seen + 1),
            true => None,
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
        // The clock was set back.
        assert_eq!(sample.take(at(3, 0)), Some(0));
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
