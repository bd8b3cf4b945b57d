//! The quota that was used last.

use super::super::slot::{Pack, Slot};
use crate::algorithm::gcra::Bucket;
use crate::quota::Steady;
use crate::{Charge, Outcome, Quota, Timestamp};

/// The quota that was used last, and its number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recent {
    identity: [u64; 2],
    pub(super) number: u32,
    /// The same number if the quota is that of a bucket whose units come back in whole microseconds;
    /// otherwise a number that no slot has.
    steady_number: u32,
    steady: Steady,
}

impl Recent {
    /// No slot has this number.
    pub(super) const NONE: Self =
        Self { identity: [0, 0], number: u32::MAX, steady_number: u32::MAX, steady: Steady::NONE };

    pub(super) const fn new(quota: &Quota, number: u32) -> Self {
        let recent = Self { identity: *quota.identity(), number, ..Self::NONE };
        match quota.steady() {
            Some(steady) => Self { steady_number: number, steady: *steady, ..recent },
            None => recent,
        }
    }

    /// Makes this quota the recent one. Mostly it is already; then nothing is written, because others read
    /// it.
    #[inline]
    pub(super) fn turn_to(&mut self, quota: &Quota, number: u32) {
        if self.number != number || !self.is(quota) {
            *self = Self::new(quota, number);
        }
    }

    #[inline]
    pub(super) const fn is(&self, quota: &Quota) -> bool {
        let ([a, b], [c, d]) = (self.identity, *quota.identity());
        a == c && b == d
    }

    /// Charges a key if that can be done quickly, as it mostly can: when the key was counted under exactly
    /// this quota, which is that of a bucket whose units come back in whole microseconds.
    #[inline(always)]
    pub(super) fn charge(&self, slot: &mut Slot, charge: &Charge<'_>, now: Timestamp) -> Option<Outcome> {
        let quota = charge.quota;
        if self.steady_number != slot.quota_unless_denied() || !self.is(quota) {
            return None;
        }
        // A cost of zero changes nothing, and a queue may be longer than the caller will wait.
        if charge.cost == 0 || self.steady.queues && charge.wait_up_to.is_some() {
            return None;
        }
        let mut bucket = Bucket::unpack(slot.packed);
        let outcome = bucket.charge_steady(&self.steady, quota, charge.cost, now)?;
        slot.packed = bucket.pack()?;
        Some(outcome)
    }
}
