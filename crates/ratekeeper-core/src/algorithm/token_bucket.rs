//! The token bucket: a budget that refills steadily and holds at most a burst.
//!
//! Over any span *d* it admits at most burst + rate × *d*. An idle bucket fills to its burst and no
//! further.

use super::full_at::FullAt;
use super::{Basis, Used, bucket};
use crate::{Outcome, Quota, Receipt, Timestamp};

/// When the bucket is full again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State(pub(crate) FullAt);

/// Takes `cost` tokens if they are there.
#[inline]
pub fn charge(state: &mut State, quota: &Quota, cost: u32, now: Timestamp) -> Outcome {
    state.0.charge::<false>(quota, cost, now)
}

/// What [`charge`] would answer.
#[inline]
#[must_use]
pub fn peek(state: &State, quota: &Quota, cost: u32, now: Timestamp) -> Outcome {
    state.0.peek::<false>(quota, cost, now)
}

/// Takes `cost` tokens, whether or not they are there.
///
/// What was not there is owed, and is paid off first, at the bucket's pace. A bucket owes at most as much as
/// it holds.
pub fn debit(state: &mut State, quota: &Quota, cost: u32, _: Option<Receipt>, now: Timestamp) {
    state.0.debit(quota, cost, now);
}

/// Puts `cost` tokens back, and no more than the bucket holds.
///
/// The part of a charge that has had the time to come back by itself is not given back a second time: the
/// bucket may have been full since, and what was not taken then was lost.
pub fn refund(state: &mut State, quota: &Quota, cost: u32, receipt: Option<Receipt>, now: Timestamp) {
    state.refund(&Basis::of(quota), cost, receipt, now);
}

impl State {
    pub(crate) fn refund(&mut self, basis: &Basis, cost: u32, receipt: Option<Receipt>, now: Timestamp) {
        let due = |receipt: Receipt| {
            let reset_at = if receipt.is_ahead_of(now) { now } else { receipt.reset_at() };
            reset_at.as_micros().saturating_sub(now.as_micros())
        };
        self.0.give_back(basis, cost, receipt.map_or(u64::MAX, due), now);
    }

    pub(crate) fn seed(quota: &Quota, used: Used, now: Timestamp) -> Self {
        Self(FullAt::seed(quota, used, now))
    }

    pub(crate) fn settle(&mut self, quota: &Quota, now: Timestamp) {
        self.0.settle(quota, now);
    }

    pub(crate) fn press(&mut self, basis: &Basis, max: u32, cost: u32, now: Timestamp) {
        self.0.press(basis, max, cost, now);
    }

    pub(crate) fn counts_until(&self, basis: &Basis) -> u64 {
        self.expires_at(basis)
    }

    pub(crate) fn used(&self, basis: &Basis, now: Timestamp) -> Used {
        self.0.used(basis, now)
    }

    pub(crate) fn expires_at(&self, _: &Basis) -> u64 {
        bucket::ceil(self.0.at())
    }
}
