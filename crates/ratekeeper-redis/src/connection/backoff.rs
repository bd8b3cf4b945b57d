//! Pauses between attempts.

use std::time::Duration;

/// Growing pauses, with some jitter, so that the processes of a fleet do not come back all at once.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    const SHORTEST: Duration = Duration::from_millis(1);
    const FIRST: Duration = Duration::from_millis(10);

    pub(crate) fn new(max: Duration) -> Self {
        // Without any pause, retrying would amount to an attack.
        let max = max.max(Self::SHORTEST);
        Self { next: Self::FIRST.min(max), max }
    }

    /// The next pause: between half of it and all of it.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.max);
        pause.mul_f64(0.5 + 0.5 * random())
    }
}

/// A number between 0 and 1 that is hard to predict.
fn random() -> f64 {
    use std::hash::{BuildHasher, RandomState};
    (RandomState::new().hash_one(0) >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest() {
        let mut backoff = Backoff::new(Duration::from_millis(100));
        for whole in [10, 20, 40, 80, 100, 100] {
            let (pause, whole) = (backoff.next(), Duration::from_millis(whole));
            assert!(pause >= whole / 2 && pause <= whole, "{pause:?} of {whole:?}");
        }
    }
}
