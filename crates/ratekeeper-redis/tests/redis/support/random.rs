//! Quotas, costs and pauses that look random and are the same in each run.

use std::time::Duration;

use ratekeeper_core::{DAY, HOUR, MINUTE, Quota, SECOND};

/// The seeds of this many cases. `RATEKEEPER_CASES` overrides the number, and `RATEKEEPER_SEED` the first seed.
pub(crate) fn cases(cases: u64) -> std::ops::Range<u64> {
    let from_env = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = from_env("RATEKEEPER_SEED").unwrap_or(0);
    first..first + from_env("RATEKEEPER_CASES").unwrap_or(cases)
}

/// Numbers that look random and are the same in each run (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
    /// If set, limits are small and periods are about this long, so that what happens to one counter matters
    /// to the next, and budgets are used up repeatedly.
    about: Option<Duration>,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed, about: None }
    }

    /// Restricts limits to small ones, and periods to about the same length.
    pub(crate) fn focus(&mut self) {
        self.about = Some(self.period());
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True once in this many times, on average.
    pub(crate) fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// A number of any size: small ones are as likely as large ones.
    fn of_any_size(&mut self, most: u64) -> u64 {
        let bits = self.below(65 - u64::from(most.leading_zeros()));
        self.below((1 << bits) + 1).clamp(1, most)
    }

    fn limit(&mut self) -> u32 {
        if self.about.is_some() {
            return self.of(&[1, 2, 3, 4, 5, 7, 10, 20, 300]);
        }
        match self.below(8) {
            0..=3 => self.of(&[1, 2, 3, 5, 7, 10, 60, 97, 100, 255, 256, 1_000, 65_536]),
            4 => self.of(&[9_999_999, 10_000_000, u32::MAX - 4, u32::MAX]),
            _ => self.of_any_size(u32::MAX.into()) as u32,
        }
    }

    fn period(&mut self) -> Duration {
        const MILLI: Duration = Duration::from_millis(1);
        if let Some(about) = self.about {
            let period = about * self.of(&[1, 1, 1, 2, 3, 7]) / self.of(&[1, 1, 1, 2, 3, 7]);
            return Duration::from_micros(period.as_micros() as u64).clamp(MILLI, 3_653 * DAY);
        }
        match self.below(8) {
            0..=2 => self.of(&[SECOND, MINUTE, HOUR, DAY]),
            3 | 4 => self.of(&[MILLI, 7 * MILLI, 1_001 * MILLI, 10 * SECOND, 30 * DAY, 3_653 * DAY]),
            _ => Duration::from_micros(self.of_any_size(3_653 * DAY.as_micros() as u64).max(1_000)),
        }
    }

    /// A quota of any shape; mostly with a limit small enough to be reached, sometimes an invalid one.
    pub(crate) fn quota(&mut self) -> Quota {
        loop {
            let (limit, period, capacity) = (self.limit(), self.period(), self.limit());
            let quota = match self.below(8) {
                0 => Quota::token_bucket(limit, period),
                1 => Quota::token_bucket(limit, period).burst(capacity),
                2 => Quota::fixed_window(limit, period),
                3 => Quota::sliding_window(limit, period),
                4 | 5 => Quota::sliding_log(limit, period),
                6 => Quota::leaky_bucket(limit, period),
                _ => Quota::leaky_bucket(limit, period).capacity(capacity),
            };
            if quota.check().is_ok() || self.once_in(4) {
                return quota;
            }
        }
    }

    /// The quota with one property changed.
    pub(crate) fn changed(&mut self, quota: &Quota) -> Quota {
        let (limit, period) = (quota.limit(), quota.period());
        let changed = match self.below(6) {
            0 => Quota::token_bucket(limit, period),
            1 => Quota::sliding_log(limit, self.period()),
            2 => Quota::sliding_log(self.limit(), period),
            3 => Quota::token_bucket(limit, period).burst(self.limit()),
            4 => Quota::sliding_window(self.limit(), period),
            _ => return self.quota(),
        };
        if changed.check().is_ok() { changed } else { self.quota() }
    }

    pub(crate) fn cost(&mut self, quota: &Quota) -> u32 {
        match self.below(16) {
            0 => 0,
            1..=6 => 1,
            7..=9 => 1 + self.below(u64::from(quota.max() / 3) + 1) as u32,
            10..=12 => self.below(u64::from(quota.max()) + 1) as u32,
            13 => quota.max(),
            14 => quota.max().saturating_add(1),
            _ => self.of(&[u32::MAX, self.state as u32]),
        }
    }

    /// How long a caller will wait: not at all, for a part of a refill, or for longer than anybody may.
    pub(crate) fn patience(&mut self, quota: &Quota) -> Duration {
        if self.once_in(4) {
            self.of(&[Duration::ZERO, 59 * SECOND, MINUTE, HOUR])
        } else {
            self.pause(quota)
        }
    }

    /// A pause that matters to a quota: none, a short one, a part of its refill, or more than all of it.
    pub(crate) fn pause(&mut self, quota: &Quota) -> Duration {
        let refill = (quota.full_refill().as_micros() as u64).max(1);
        let pause = Duration::from_micros(match self.below(10) {
            0..=2 => 0,
            3 => self.below(3),
            4 => self.below(1_000),
            5 | 6 => self.below(refill / 10 + 2),
            7 => self.below(refill / u64::from(quota.max().max(1)) + 2),
            8 => self.below(refill + 2),
            _ => self.below(3 * refill + 2),
        });
        // Years only occasionally, so that a timeline does not reach the end of what clocks can count.
        pause.min(if self.once_in(20) { 1_000 * DAY } else { 30 * DAY })
    }

    /// How far a clock steps back: from a microsecond to days.
    pub(crate) fn step_back(&mut self, quota: &Quota) -> Duration {
        match self.below(4) {
            0 => Duration::from_micros(1 + self.below(5)),
            1 => Duration::from_micros(self.of_any_size(5 * DAY.as_micros() as u64)),
            _ => self.pause(quota).min(5 * DAY),
        }
    }
}
