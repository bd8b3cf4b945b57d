//! How many requests may go together for all of them to be answered in time.

use std::time::Duration;

/// Learns from past goes how many requests can be asked at once.
///
/// Most counters take Redis some microseconds each, but a long log takes a tenth of a millisecond, and what
/// is asked together is answered when all of it is done. So after a go that took too much of the time that a
/// request can wait, half as many go; and as long as all is well, more and more. The distance to the server
/// does not matter, because it costs a single request just as much.
#[derive(Debug)]
pub(crate) struct Pace {
    /// How many requests go together now.
    now: usize,
    most: usize,
    /// How much longer a go may take than a single request.
    longest: Duration,
    /// About how long a single request takes: the shortest time that was seen recently.
    shortest: Duration,
}

/// The least number that goes together, if that many wait. If so few take long, it is not because they are
/// many.
const LEAST: usize = 4;

impl Pace {
    /// Starts with as many as allowed.
    pub(crate) const fn new(most: usize, longest: Duration) -> Self {
        Self { now: most, most, longest, shortest: Duration::MAX }
    }

    /// How many requests may go together.
    pub(crate) const fn at_once(&self) -> usize {
        self.now
    }

    /// Starts over with how long a single request takes: it may be another server.
    pub(crate) const fn is_connected(&mut self, took: Duration) {
        self.shortest = took;
    }

    /// Learns from a go. `bounded`: whether requests were left waiting because no more were allowed to go.
    pub(crate) fn learn(&mut self, asked: usize, bounded: bool, took: Duration) {
        // Only a small go is believed that a single request takes longer now.
        let rising = self.shortest.saturating_add(self.shortest / 16);
        self.shortest = took.min(if asked <= LEAST { rising } else { self.shortest });
        if took - self.shortest > self.longest {
            if asked > LEAST {
                // A go may be late for another reason, so the number is at most halved.
                self.now = (asked / 2).max(self.now / 2).max(LEAST).min(self.now);
            }
        } else if asked >= self.now || bounded {
            self.now = (self.now + self.now.div_ceil(4)).min(self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_micros(2_500);

    /// The number that go together after some full goes, with this time for each request and this round-trip
    /// time.
    fn settled(pace: &mut Pace, goes: usize, each: Duration, way: Duration) -> usize {
        for _ in 0..goes {
            let asked = pace.at_once();
            pace.learn(asked, true, way + each * asked as u32);
        }
        pace.at_once()
    }

    #[test]
    fn what_takes_long_is_asked_in_smaller_goes_and_what_does_not_in_larger_ones() {
        let mut pace = Pace::new(256, LONGEST);
        pace.is_connected(Duration::from_micros(60));
        let (quick, slow) = (Duration::from_micros(2), Duration::from_micros(100));
        assert_eq!(settled(&mut pace, 10, quick, Duration::from_micros(60)), 256);
        for goes in [30, 1_000, 1_001, 1_002, 1_003] {
            let few = settled(&mut pace, goes, slow, Duration::from_micros(60));
            assert!((8..=40).contains(&few), "{few}");
        }
        assert_eq!(settled(&mut pace, 30, quick, Duration::from_micros(60)), 256);
    }

    #[test]
    fn a_server_that_is_far_is_asked_no_less() {
        let mut pace = Pace::new(256, LONGEST);
        let (each, way) = (Duration::from_micros(2), Duration::from_millis(30));
        pace.is_connected(way);
        assert_eq!(settled(&mut pace, 30, each, way), 256);
        // Nor one that is suddenly farther away, after a while.
        let farther = Duration::from_millis(60);
        assert_eq!(settled(&mut pace, 100, each, farther), 256);
    }

    #[test]
    fn a_small_go_says_nothing_of_a_large_one() {
        let mut pace = Pace::new(256, LONGEST);
        pace.is_connected(Duration::from_micros(60));
        pace.learn(200, false, Duration::from_millis(20));
        assert_eq!(pace.at_once(), 128);
        (0..100).for_each(|_| pace.learn(1, false, Duration::from_micros(60)));
        assert_eq!(pace.at_once(), 128);
        (0..100).for_each(|_| pace.learn(LEAST, false, Duration::from_secs(1)));
        assert_eq!(pace.at_once(), 128);
        // However long it takes, a few may go.
        for _ in 0..8 {
            let asked = pace.at_once();
            pace.learn(asked, true, Duration::from_secs(1));
        }
        assert_eq!(pace.at_once(), LEAST);
    }

    /// With several goes at once to a far server, none is as large as allowed.
    #[test]
    fn who_was_held_back_for_one_that_was_late_is_let_go_again() {
        let mut pace = Pace::new(256, LONGEST);
        pace.is_connected(Duration::from_millis(6));
        (0..8).for_each(|_| pace.learn(5, true, Duration::from_millis(30)));
        assert_eq!(pace.at_once(), LEAST);
        (0..30).for_each(|_| pace.learn(1, true, Duration::from_millis(6)));
        assert_eq!(pace.at_once(), 256);
    }

    #[test]
    fn no_more_go_than_may() {
        let mut pace = Pace::new(3, LONGEST);
        (0..100).for_each(|go| pace.learn(3, true, Duration::from_millis(go % 7)));
        assert_eq!(pace.at_once(), 3);
    }
}
