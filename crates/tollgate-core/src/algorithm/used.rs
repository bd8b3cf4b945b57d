//! How much of a budget is used, in a form that means the same under every quota.

/// How many bits of a [`Used`] are behind the point. With 32 before it, stores that compute in
/// floating point can hold it exactly.
pub(crate) const FRACTION: u32 = 20;

/// The pressure of a budget that is used up.
pub(crate) const PRESSED: u32 = 1 << 16;

/// Units used, rounded up to a millionth or so.
///
/// This is what is carried over when a quota changes: what was used stays used, to the fraction, up to what
/// the new quota holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Used(u64);

impl Used {
    pub(crate) const fn units(units: u64) -> Self {
        // More than a u32 cannot be used under any quota.
        let units = if units > u32::MAX as u64 { u32::MAX as u64 } else { units };
        Self(units << FRACTION)
    }

    /// `numerator / denominator` units.
    pub(crate) fn ratio(numerator: u128, denominator: u128) -> Self {
        let whole = numerator / denominator;
        let rest = ((numerator % denominator) << FRACTION).div_ceil(denominator);
        if whole > u128::from(u32::MAX) {
            return Self::units(u64::MAX);
        }
        Self(((whole as u64) << FRACTION) + rest as u64)
    }

    pub(crate) const fn whole(self) -> u32 {
        (self.0 >> FRACTION) as u32
    }

    pub(crate) const fn fraction(self) -> u32 {
        (self.0 & ((1 << FRACTION) - 1)) as u32
    }

    /// Whole units, rounded up.
    pub(crate) const fn ceil(self) -> u32 {
        self.whole().saturating_add((self.fraction() > 0) as u32)
    }

    /// The share of `capacity` that is used, [`PRESSED`] being all of it.
    pub(crate) fn pressure(self, capacity: u32) -> u32 {
        let capacity = u64::from(capacity.max(1)) << (FRACTION - 16);
        self.0.div_ceil(capacity).min(u64::from(PRESSED)) as u32
    }
}
