//! What the numbers of a state mean.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::quota::gcd;
use crate::{Algorithm, Quota};

/// The shortest period that a quota has, in microseconds.
const SHORTEST: u64 = 1_000;

/// Everything about a quota that the state counted under it depends on.
///
/// Limit and burst are not part of it: how much was taken is one thing, how much may be taken another. So a
/// state under one basis is the same state under every quota of that basis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Basis {
    pub(crate) algorithm: Algorithm,
    /// For buckets, the rate in lowest terms: this many units per `micros`. For the others, one.
    pub(crate) units: u32,
    /// For buckets, see `units`. For the others, the period.
    pub(crate) micros: NonZeroU64,
}

impl Basis {
    pub(crate) const fn of(quota: &Quota) -> Self {
        let algorithm = quota.algorithm();
        match algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                Self { algorithm, units: quota.rate_units(), micros: quota.rate_micros() }
            }
            Algorithm::FixedWindow | Algorithm::SlidingWindow | Algorithm::SlidingLog => {
                Self { algorithm, units: 1, micros: quota.period_nonzero() }
            }
        }
    }

    /// A quota of this basis that holds `max`.
    pub(crate) fn quota(&self, max: u32) -> Quota {
        let period = Duration::from_micros(self.period());
        match self.algorithm {
            Algorithm::FixedWindow => Quota::fixed_window(max, period),
            Algorithm::SlidingWindow => Quota::sliding_window(max, period),
            Algorithm::SlidingLog => Quota::sliding_log(max, period),
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                // A period in lowest terms may be shorter than that of any quota.
                let times = self.times();
                let (units, period) = (self.units.saturating_mul(times), period * times);
                if self.algorithm == Algorithm::TokenBucket {
                    Quota::token_bucket(units, period).burst(max)
                } else {
                    Quota::leaky_bucket(units, period).capacity(max)
                }
            }
        }
    }

    /// Whether this is the rate of any quota: in lowest terms, and not faster than all of them. Under a rate
    /// that is not, parts of a microsecond mean something else to the quota.
    pub(crate) const fn is_rate(&self) -> bool {
        self.units == 1
            || (self.units.checked_mul(self.times()).is_some()
                && gcd(self.units as u64, self.micros.get()) == 1)
    }

    /// By how much the period in lowest terms must be multiplied to be one that a quota may have.
    const fn times(&self) -> u32 {
        SHORTEST.div_ceil(self.micros.get()) as u32
    }

    /// The period of a window or a log.
    pub(crate) const fn period(&self) -> u64 {
        self.micros.get()
    }
}
