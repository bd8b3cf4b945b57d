//! Pauses between attempts to reach a server.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// The first pause.
const SHORTEST: Duration = Duration::from_millis(100);

/// A pause that is twice as long each time, up to a bound, and never quite the same: so that many who have lost one server
/// do not come back together.
#[derive(Clone, Debug)]
pub(super) struct Pause {
    next: Duration,
    longest: Duration,
}

impl Pause {
    pub(super) fn up_to(longest: Duration) -> Self {
        Self { next: SHORTEST.min(longest), longest }
    }

    /// The pause to make now, between a half and the whole of what it is due.
    pub(super) fn next(&mut self) -> Duration {
        let due = self.next;
        self.next = (due * 2).min(self.longest);
        // A hasher that has random keys and is given nothing is as random as they are.
        let random = RandomState::new().build_hasher().finish() >> 32;
        due / 2 + due.mul_f64(random as f64 / f64::from(u32::MAX)) / 2
    }

    /// It worked.
    pub(super) fn reset(&mut self) {
        *self = Self::up_to(self.longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound() {
        let mut pause = Pause::up_to(Duration::from_secs(1));
        for due in [100, 200, 400, 800, 1000, 1000] {
            let found = pause.next().as_millis();
            assert!((due / 2..=due).contains(&found), "{found} of {due}");
        }
        pause.reset();
        assert!(pause.next() <= SHORTEST);
    }
}
