//! How long to poll for an answer before going to sleep.

use std::time::{Duration, Instant};

/// Polls for as long as it pays.
///
/// A task that sleeps has to be woken, which on a machine with an idle core can take longer than the answer
/// did, and costs the server time as well. So it is worth polling for the answer a little longer than one
/// would like to. But where answers take longer than that, polling gains nothing, and it is tried less and
/// less often.
#[derive(Debug)]
pub(super) struct Lookout {
    /// How long to poll at a time.
    most: Duration,
    /// How many times in a row no answer came.
    in_vain: u32,
    /// How many times to skip.
    skip: u32,
}

/// After this many misses in a row, it is not tried any less often.
const MOST_IN_VAIN: u32 = 8;

impl Lookout {
    pub(super) const fn new(most: Duration) -> Self {
        Self { most, in_vain: 0, skip: 0 }
    }

    /// Until when to poll; `None` if it is not worth it.
    pub(super) fn until(&mut self, now: Instant) -> Option<Instant> {
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        if self.most.is_zero() { None } else { Some(now + self.most) }
    }

    /// The answer came while polling.
    pub(super) const fn seen(&mut self) {
        self.in_vain = 0;
    }

    /// No answer came.
    pub(super) fn in_vain(&mut self) {
        self.in_vain = (self.in_vain + 1).min(MOST_IN_VAIN);
        self.skip = (1 << self.in_vain) - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_micros(50);

    #[test]
    fn it_looks_for_as_long_as_may() {
        let now = Instant::now();
        assert_eq!(Lookout::new(MOST).until(now), Some(now + MOST));
        assert_eq!(Lookout::new(Duration::ZERO).until(now), None);
    }

    #[test]
    fn what_is_in_vain_is_tried_ever_more_seldom() {
        let now = Instant::now();
        let mut lookout = Lookout::new(MOST);
        let mut tried = 0;
        for _ in 0..10_000 {
            if lookout.until(now).is_some() {
                tried += 1;
                lookout.in_vain();
            }
        }
        assert!((30..60).contains(&tried), "{tried}");
        // Once it has paid, it is tried each time.
        while lookout.until(now).is_none() {}
        lookout.seen();
        assert!(lookout.until(now).is_some() && lookout.until(now).is_some());
    }
}
