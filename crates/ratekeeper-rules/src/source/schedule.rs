//! When a server is asked again.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

use tokio::time::Instant;

use super::{LEAST_POLL, LONGEST_POLL};

/// The first pause.
const SHORTEST: Duration = Duration::from_millis(100);

/// When to ask a server that has reported nothing: after a while if all is well, and sooner if it is not.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    every: Duration,
    pause: Pause,
    is_well: bool,
    wake: Option<Instant>,
}

impl Schedule {
    pub(super) fn every(interval: Duration) -> Self {
        let every = interval.clamp(LEAST_POLL, LONGEST_POLL);
        Self { every, pause: Pause::up_to(every), is_well: false, wake: None }
    }

    /// When to ask again.
    pub(super) fn wake(&self) -> Instant {
        self.wake.unwrap_or_else(Instant::now)
    }

    /// The server was asked, and answered as it should, or not.
    pub(super) fn asked(&mut self, is_well: bool) {
        self.is_well = is_well;
        let wait = if is_well { self.every } else { self.pause.next() };
        self.wake = Some(Instant::now() + wait);
    }

    /// The server reported a change, or had nothing to report for as long as that may last: the connection
    /// works.
    pub(super) fn works(&mut self) {
        if self.is_well {
            self.pause.reset();
        }
    }

    /// The connection was lost. There is a pause even before the first attempt, for a connection that is lost
    /// again and again.
    pub(super) fn lost(&mut self) {
        self.wake = Some(Instant::now() + self.pause.next());
    }
}

impl std::fmt::Display for Schedule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "every {:?}", self.every)
    }
}

/// A pause that doubles each time, up to a bound, with jitter, so that many clients that have lost one server
/// do not come back together.
#[derive(Clone, Debug)]
struct Pause {
    next: Duration,
    longest: Duration,
}

impl Pause {
    fn up_to(longest: Duration) -> Self {
        Self { next: SHORTEST.min(longest), longest }
    }

    /// The pause to make now, between half and all of what is due.
    fn next(&mut self) -> Duration {
        let due = self.next;
        self.next = (due * 2).min(self.longest);
        // A hasher with random keys and no input is as random as its keys.
        let random = RandomState::new().build_hasher().finish() >> 32;
        due / 2 + due.mul_f64(random as f64 / f64::from(u32::MAX)) / 2
    }

    /// Resets after a success.
    fn reset(&mut self) {
        *self = Self::up_to(self.longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long it is until the server is asked again, with the clock standing still.
    fn wait(schedule: &Schedule) -> Duration {
        schedule.wake() - Instant::now()
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_answer_is_asked_sooner_and_then_less_and_less_often() {
        let mut schedule = Schedule::every(Duration::from_secs(30));
        schedule.asked(true);
        assert_eq!(wait(&schedule), Duration::from_secs(30));
        for attempt in 0..20 {
            schedule.asked(false);
            assert!(wait(&schedule) <= SHORTEST * (1 << attempt.min(20)), "{attempt}");
            // The connection works, but the answers do not.
            schedule.works();
        }
        assert!(wait(&schedule) >= Duration::from_secs(15));
        schedule.asked(true);
        schedule.works();
        schedule.lost();
        assert!(wait(&schedule) <= SHORTEST);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_is_lost_again_and_again_is_made_less_and_less_often() {
        let mut schedule = Schedule::every(Duration::from_secs(30));
        for _ in 0..20 {
            schedule.asked(true);
            schedule.lost();
        }
        assert!(wait(&schedule) >= Duration::from_secs(15));
    }

    #[tokio::test(start_paused = true)]
    async fn never_is_a_long_time() {
        let mut schedule = Schedule::every(Duration::MAX);
        for is_well in [true, false] {
            schedule.asked(is_well);
            assert!(wait(&schedule) <= LONGEST_POLL);
        }
        (0..100).for_each(|_| schedule.lost());
    }

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
