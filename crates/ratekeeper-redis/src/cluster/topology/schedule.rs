//! When to ask the nodes again which of them has which slots.

use std::time::Duration;

use crate::connection::breaker::Pauses;

/// The pause while nothing seems wrong.
const LONG: Duration = Duration::from_secs(30);
/// The longest pause while requests cannot be answered before the slots are known.
const WANTED: Duration = Duration::from_millis(200);

/// The pauses between two rounds. They grow for as long as nothing changes: what has not helped for a minute
/// is unlikely to help in the next moment, and every process of a fleet asks.
#[derive(Debug)]
pub(in crate::cluster) struct Rhythm {
    longest: Duration,
    in_trouble: Pauses,
    in_doubt: Pauses,
    wanted: Pauses,
}

/// How to judge an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cluster) enum Mood {
    /// All is well.
    Calm,
    /// The nodes work, but do not agree, or do not answer.
    Doubt,
    /// A node fails.
    Trouble,
}

impl Rhythm {
    /// `longest` is the longest pause while a node fails.
    pub(in crate::cluster) fn new(longest: Duration) -> Self {
        let (in_trouble, in_doubt) = (Pauses::new(longest.min(LONG)), Pauses::new(LONG));
        Self { longest, in_trouble, in_doubt, wanted: Pauses::new(WANTED) }
    }

    /// Something has changed, so more may.
    pub(in crate::cluster) fn restart(&mut self) {
        *self = Self::new(self.longest);
    }

    /// The pause if no request waits for the answer.
    pub(in crate::cluster) fn pause(&mut self, mood: Mood) -> Duration {
        match mood {
            Mood::Calm => LONG,
            Mood::Doubt => self.in_doubt.next(),
            Mood::Trouble => self.in_trouble.next(),
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
        let mut rhythm = Rhythm::new(Duration::from_secs(1));
        assert_eq!(rhythm.pause(Mood::Calm), LONG);
        for _ in 0..2 {
            assert!(rhythm.pause(Mood::Trouble) <= Duration::from_millis(10));
            assert!(rhythm.pause_if_wanted() <= Duration::from_millis(10));
            for _ in 0..20 {
                let pauses =
                    [rhythm.pause(Mood::Trouble), rhythm.pause(Mood::Doubt), rhythm.pause_if_wanted()];
                assert!(pauses[0] <= Duration::from_secs(1) && pauses[1] <= LONG && pauses[2] <= WANTED);
            }
            assert!(rhythm.pause(Mood::Trouble) >= Duration::from_millis(500));
            assert!(rhythm.pause(Mood::Doubt) >= LONG / 2);
            assert!(rhythm.pause_if_wanted() >= WANTED / 2);
            rhythm.restart();
        }
    }
}
