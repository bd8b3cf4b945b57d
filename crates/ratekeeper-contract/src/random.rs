//! Quotas, costs and pauses that look random and are the same each time.

use std::time::Duration;

use ratekeeper_core::{DAY, Quota};

/// Numbers that look random and are the same each time (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    pub(crate) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    pub(crate) fn quota(&mut self) -> Quota {
        let limit = self.of(&[1, 2, 3, 5, 7, 10, 60, 97, 100, 1_000, 9_999]);
        let period = self.of(&[1, 7, 250, 1_000, 1_001, 10_000, 60_000, 86_400_000, 2_592_000_000]);
        let period = Duration::from_millis(period);
        let capacity = self.of(&[1, 3, 10, 64, 500]);
        match self.below(7) {
            0 => Quota::token_bucket(limit, period),
            1 => Quota::token_bucket(limit, period).burst(capacity),
            2 => Quota::fixed_window(limit, period),
            3 => Quota::sliding_window(limit, period),
            4 => Quota::sliding_log(limit.min(100), period),
            5 => Quota::leaky_bucket(limit, period),
            _ => Quota::leaky_bucket(limit, period).capacity(capacity),
        }
    }

    /// A pause that matters to a quota: zero, a little, a part of its refill, or more than all of it.
    pub(crate) fn pause(&mut self, quota: &Quota) -> Duration {
        let refill = quota.full_refill().as_micros() as u64;
        let pause = Duration::from_micros(match self.below(8) {
            0..=2 => 0,
            3 => self.below(1_000),
            4 | 5 => self.below(refill / 10 + 2),
            6 => self.below(refill + 2),
            _ => self.below(3 * refill + 2),
        });
        // So that a history does not reach the end of what clocks can count.
        pause.min(1_000 * DAY)
    }

    pub(crate) fn cost(&mut self, quota: &Quota) -> u32 {
        match self.below(8) {
            0..=3 => 1,
            4 | 5 => 1 + self.below(u64::from(quota.max() / 3 + 1)) as u32,
            6 => self.below(u64::from(quota.max()) + 1) as u32,
            _ => quota.max() + self.below(2) as u32,
        }
    }
}
