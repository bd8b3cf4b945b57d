//! How much of a budget is used, in a form that means the same under every quota.

/// The pressure of a budget that is used up.
pub(crate) const PRESSED: u32 = 1 << 16;

/// Units used.
///
/// This is what is carried over when a quota changes: what was used stays used, to the fraction, up to what
/// the new quota holds.
///
/// It is in floating point, unlike everything else. A change is computed once, from few numbers, so errors do
/// not add up; and a script in a store that has no other numbers computes it to the same bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub(crate) struct Used(f64);

impl Used {
    pub(crate) const fn units(units: u64) -> Self {
        Self(units as f64)
    }

    /// A number of units that may have a fraction.
    pub(crate) const fn exactly(units: f64) -> Self {
        Self(units)
    }

    pub(crate) const fn get(self) -> f64 {
        self.0
    }

    pub(crate) const fn at_most(self, capacity: u32) -> Self {
        Self(self.0.min(capacity as f64))
    }

    /// The larger of the two.
    pub(crate) fn or_more(self, other: Self) -> Self {
        if self < other { other } else { self }
    }

    /// This plus `units`.
    pub(crate) fn and(self, units: u32) -> Self {
        Self(self.0 + f64::from(units))
    }

    /// Whole units, rounded up.
    pub(crate) fn ceil(self) -> u32 {
        self.0.ceil() as u32
    }

    /// The share of `capacity` that is used. It is [`PRESSED`] as soon as less than one unit is left: such a
    /// budget denies, even if half of a unit has come back.
    pub(crate) fn pressure(self, capacity: u32) -> u32 {
        if f64::from(capacity) - self.0 < 1.0 {
            return PRESSED;
        }
        ((self.0 / f64::from(capacity.max(1)) * f64::from(PRESSED)).ceil() as u32).min(PRESSED)
    }
}
