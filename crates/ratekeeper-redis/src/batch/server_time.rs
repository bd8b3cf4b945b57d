//! Estimates the server's clock without asking it.

use std::time::Duration;

use ratekeeper_core::Timestamp;
use tokio::time::Instant;

/// The clock of one server, as known from its answers.
///
/// An answer carries the server's time. The server read its clock before the answer arrived here, so by the
/// server's clock it is now *at least* that time plus what has passed since. The estimate is such a lower
/// bound, and the largest of the recent ones. So a charge that is void from then on, by the server's clock,
/// cannot be made after its caller has stopped waiting.
///
/// An answer that was long on its way says less than others did, and does not contradict them: the server may
/// have read its clock soon after it was asked. If even then the clock would have been earlier than
/// estimated, it was set back, and nothing that was known of it is true any more.
#[derive(Debug)]
pub(crate) struct ServerTime {
    origin: Instant,
    /// A lower bound for the microseconds of the server's clock at `origin`.
    offset: Option<i64>,
}

/// What fraction of the difference a smaller bound takes away from a larger one, so that a clock that was set
/// back by less than answers take is followed after some of them.
const FADE: i64 = 64;

impl ServerTime {
    pub(crate) fn new() -> Self {
        Self { origin: Instant::now(), offset: None }
    }

    /// Learns from an answer: the server has read its clock between sending and arrival.
    pub(crate) fn learn(&mut self, server: Timestamp, sent: Instant, arrived: Instant) {
        let server = server.as_micros() as i64;
        let (least, most) = (server - self.since_origin(arrived), server - self.since_origin(sent));
        self.offset = Some(match self.offset {
            Some(known) if (least..=most).contains(&known) => known - (known - least) / FADE,
            _ => least,
        });
    }

    /// A lower bound for the server's clock at a moment; `None` if nothing is known of it.
    pub(crate) fn at(&self, moment: Instant) -> Option<Timestamp> {
        let micros = self.offset?.saturating_add(self.since_origin(moment));
        Some(Timestamp::from_micros(u64::try_from(micros).unwrap_or(0)))
    }

    fn since_origin(&self, moment: Instant) -> i64 {
        let micros = |duration: Duration| i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        match moment.checked_duration_since(self.origin) {
            Some(after) => micros(after),
            None => -micros(self.origin.duration_since(moment)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn it_is_a_lower_bound_and_the_best_of_recent_ones() {
        let mut time = ServerTime::new();
        let start = Instant::now();
        assert_eq!(time.at(start), None);
        time.learn(Timestamp::from_secs(1_000), start, start + MS);
        assert_eq!(time.at(start + 3 * MS), Some(Timestamp::from_micros(1_000_002_000)));
        // An answer that was long on its way says less, and changes little.
        time.learn(Timestamp::from_micros(1_000_001_000), start + MS, start + 10 * MS);
        let at = time.at(start + 11 * MS).unwrap().as_micros();
        assert!((1_000_009_800..=1_000_010_000).contains(&at), "{at}");
        // One that was quick says more.
        time.learn(Timestamp::from_micros(1_000_012_500), start + 11 * MS, start + 12 * MS);
        assert_eq!(time.at(start + 12 * MS), Some(Timestamp::from_micros(1_000_012_500)));
    }

    #[test]
    fn a_clock_that_steps_is_followed() {
        let mut time = ServerTime::new();
        let start = Instant::now();
        for secs in [1_000, 5_000, 100] {
            time.learn(Timestamp::from_secs(secs), start, start);
            assert_eq!(time.at(start), Some(Timestamp::from_secs(secs)));
        }
        // Even if it steps by little more than the answer took.
        time.learn(Timestamp::from_micros(99_900_000), start, start + 99 * MS);
        assert_eq!(time.at(start + 99 * MS), Some(Timestamp::from_micros(99_900_000)));
    }

    #[test]
    fn a_step_that_no_answer_proves_is_followed_after_some() {
        let mut time = ServerTime::new();
        let start = Instant::now();
        time.learn(Timestamp::from_secs(100), start, start);
        let late = |time: &mut ServerTime| time.learn(Timestamp::from_secs(100), start, start + 2_000 * MS);
        late(&mut time);
        assert!(time.at(start).unwrap() > Timestamp::from_micros(99_960_000), "it may just have been late");
        for _ in 0..1_000 {
            late(&mut time);
        }
        assert!(time.at(start).unwrap() <= Timestamp::from_micros(98_000_064));
    }
}
