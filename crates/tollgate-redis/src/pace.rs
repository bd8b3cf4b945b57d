//! How many may go together, for all of them to be answered in time.

use std::time::Duration;

/// Learns how many can be asked at once from how long that took.
///
/// Most counters take Redis some microseconds each, but a long log takes a tenth of a millisecond, and what is asked together is
/// answered when all of it is done. So after a go that took too much of the time that anybody can wait, half as many go;
/// and as long as all is well, more and more. How far the server is does not matter: that takes as long for one.
#[derive(Debug)]
pub(crate) struct Pace {
    /// How many go together now.
    now: usize,
    most: usize,
    /// How much longer than for one it may take for all.
    longest: Duration,
    /// About how long it takes for one: the shortest that was seen of late.
    shortest: Duration,
}

/// Fewer than so many never go, if so many wait: that few take long is not because they are many.
const LEAST: usize = 4;

impl Pace {
    /// As many as may.
    pub(crate) const fn new(most: usize, longest: Duration) -> Self {
        Self { now: most, most, longest, shortest: Duration::MAX }
    }

    /// How many may go together.
    pub(crate) const fn at_once(&self) -> usize {
        self.now
    }

    /// It may be another server, and takes so long for one.
    pub(crate) const fn is_connected(&mut self, took: Duration) {
        self.shortest = took;
    }

    /// So many were asked together, and it took so long. `bounded`: whether others were left waiting, as no more might go.
    pub(crate) fn learn(&mut self, asked: usize, bounded: bool, took: Duration) {
        // That it takes longer for one is believed of a few only.
        let rising = self.shortest.saturating_add(self.shortest / 16);
        self.shortest = took.min(if asked <= LEAST { rising } else { self.shortest });
        if took - self.shortest > self.longest {
            if asked > LEAST {
                // One that is late may be so for another reason, and so no more than half are held back for it.
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

    /// The number that go together after so many goes of as many as may, each of which takes so long, on a way of so long.
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

    /// In several goes at once to a server that is far, none is as large as may be.
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
