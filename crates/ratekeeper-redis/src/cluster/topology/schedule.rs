//! When to ask the nodes again which of them has which slots.

use std::time::Duration;

use crate::connection::Backoff;

/// The pause while nothing seems wrong.
const LONG: Duration = Duration::from_secs(30);
/// The longest pause while requests cannot be answered before the slots are known.
const WANTED: Duration = Duration::from_millis(200);

/// The pauses between two rounds. They grow for as long as nothing changes: what has not helped for a minute
/// is unlikely to help in the next moment, and every process of a fleet asks.
#[derive(Debug)]
pub(in crate::cluster) struct Schedule {
    longest: Duration,
    in_trouble: Backoff,
    in_doubt: Backoff,
    wanted: Backoff,
}

/// What is known of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cluster) enum Health {
    /// All is well.
    Well,
    /// The nodes work, but do not agree, or do not answer.
    Unsure,
    /// A node fails.
    Failing,
}

impl Schedule {
    /// `longest` is the longest pause while a node fails.
    pub(in crate::cluster) fn new(longest: Duration) -> Self {
        let (in_trouble, in_doubt) = (Backoff::new(longest.min(LONG)), Backoff::new(LONG));
        Self { longest, in_trouble, in_doubt, wanted: Backoff::new(WANTED) }
    }

    /// Something has changed, so more may.
    pub(in crate::cluster) fn restart(&mut self) {
        *self = Self::new(self.longest);
    }

    /// The pause if no request waits for the answer.
    pub(in crate::cluster) fn pause(&mut self, health: Health) -> Duration {
        match health {
            Health::Well => LONG,
            Health::Unsure => self.in_doubt.next(),
            Health::Failing => self.in_trouble.next(),
        }
    }

    /// The pause if one does.
    pub(in crate::cluster) fn pause_if_wanted(&mut self) -> Duration {
        self.wanted.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_something_changes() {
        let mut schedule = Schedule::new(Duration::from_secs(1));
        assert_eq!(schedule.pause(Health::Well), LONG);
        for _ in 0..2 {
            assert!(schedule.pause(Health::Failing) <= Duration::from_millis(10));
            assert!(schedule.pause_if_wanted() <= Duration::from_millis(10));
            for _ in 0..20 {
                let pauses = [
                    schedule.pause(Health::Failing),
                    schedule.pause(Health::Unsure),
                    schedule.pause_if_wanted(),
                ];
                assert!(pauses[0] <= Duration::from_secs(1) && pauses[1] <= LONG && pauses[2] <= WANTED);
            }
            assert!(schedule.pause(Health::Failing) >= Duration::from_millis(500));
            assert!(schedule.pause(Health::Unsure) >= LONG / 2);
            assert!(schedule.pause_if_wanted() >= WANTED / 2);
            schedule.restart();
        }
    }
}
