//! The quota that was asked for last.

use super::super::slot::{Pack, Slot};
use crate::algorithm::token_bucket;
use crate::{Charge, Outcome, Quota, Timestamp};

/// The quota that was asked for last, and its number.
#[derive(Clone, Copy, Debug)]
// Without a gap, so that a shard fits into one cache line.
#[repr(C, packed(4))]
pub(super) struct Recent {
    identity: [u64; 2],
    pub(super) number: u32,
}

impl Recent {
    /// No slot has this number.
    pub(super) const NONE: Self = Self { identity: [0, 0], number: u32::MAX };

    pub(super) const fn new(quota: &Quota, number: u32) -> Self {
        Self { identity: *quota.identity(), number }
    }

    #[inline]
    pub(super) const fn is(&self, quota: &Quota) -> bool {
        let ([a, b], [c, d]) = (self.identity, *quota.identity());
        a == c && b == d
    }

    /// Charges a key if that is quickly done, as it mostly is: when it was counted under this very
    /// quota, which is that of a bucket whose units come back in whole microseconds.
    #[inline(always)]
    pub(super) fn charge(&self, slot: &mut Slot, charge: &Charge<'_>, now: Timestamp) -> Option<Outcome> {
        let quota = charge.quota;
        if self.number != slot.quota || !self.is(quota) {
            return None;
        }
        let mut state: token_bucket::State = Pack::unpack(slot.packed, quota, now);
        let outcome = state.0.charge_steady(quota, charge.cost, now)?;
        slot.packed = state.pack();
        Some(outcome)
    }
}
