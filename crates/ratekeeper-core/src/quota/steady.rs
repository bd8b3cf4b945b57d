//! What a bucket needs to know about its quota if units come back in whole microseconds.

use super::Algorithm;

/// A bucket whose units take a whole number of microseconds to come back, as with most quotas.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steady {
    /// How long one unit takes, in microseconds.
    unit: u64,
    // ⌈2^(63 + shift) / unit⌉, where `shift` is the binary logarithm of the unit, rounded down. Multiplying
    // by it is quicker than dividing. See `units`.
    reciprocal: u64,
    shift: u8,
    /// Whether an admitted request has to wait for its turn.
    pub(crate) queues: bool,
}

impl Steady {
    /// The value that belongs to no quota.
    pub(crate) const NONE: Self = Self { unit: 0, reciprocal: 0, shift: 0, queues: false };

    /// `unit` must not be zero.
    pub(super) const fn new(algorithm: Algorithm, unit: u64) -> Option<Self> {
        let queues = match algorithm {
            Algorithm::TokenBucket => false,
            Algorithm::LeakyBucket => true,
            _ => return None,
        };
        let shift = unit.ilog2();
        let reciprocal = (1_u128 << (63 + shift)).div_ceil(unit as u128) as u64;
        Some(Self { unit, reciprocal, shift: shift as u8, queues })
    }

    /// How long `cost` units take, in microseconds.
    #[inline]
    pub(crate) const fn span(&self, cost: u32) -> u64 {
        self.unit.saturating_mul(cost as u64)
    }

    /// How many units come back within `micros`, which is at most 2^62, and how long until there is
    /// one more.
    #[inline]
    pub(crate) const fn units(&self, micros: u64) -> (u32, u64) {
        // The reciprocal is too large by less than 1, so with `unit` < 2^(shift + 1) the quotient is
        // too large by less than micros / 2^(63 + shift) ≤ 1 / 2^(shift + 1) < 1 / unit, which does not
        // take it to the next whole number.
        let units = ((micros as u128 * 2 * self.reciprocal as u128) >> 64) as u64 >> self.shift;
        (units as u32, self.unit - (micros - units * self.unit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reciprocal_divides_exactly() {
        let around = |n: u64| [n - 1, n, n + 1];
        let divisors = (0..52).flat_map(|bit| around(1 << bit)).chain([3_600, 3_600_000, 86_400_000_000]);
        for unit in divisors.filter(|unit| *unit > 0) {
            let steady = Steady::new(Algorithm::TokenBucket, unit).unwrap();
            for most in (0..=52).map(|bit| 1_u64 << bit) {
                let multiple = most / unit * unit;
                for micros in [most, most - 1, most / 3, multiple, multiple.saturating_sub(1)] {
                    let (units, next) = steady.units(micros);
                    assert_eq!(units, (micros / unit) as u32, "{micros} / {unit}");
                    assert_eq!(next, unit - micros % unit, "{micros} / {unit}");
                }
            }
        }
    }
}
