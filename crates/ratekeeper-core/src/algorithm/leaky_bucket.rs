//! The leaky bucket: a queue that drains steadily.
//!
//! Departures are never closer than 1/rate (to the microsecond), and the queue holds at most its capacity,
//! including the one that leaves immediately. An admitted charge carries a delay: how long to hold the
//! request back until it is its turn.

use super::full_at::FullAt;
use super::{Basis, Used, bucket};
use crate::{Outcome, Quota, Receipt, Timestamp};

/// When the queue is empty, so that the next one could leave immediately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State(pub(crate) FullAt);

/// Takes `cost` places at the end of the queue if they are free.
#[inline]
pub fn charge(state: &mut State, quota: &Quota, cost: u32, now: Timestamp) -> Outcome {
    state.0.charge::<true>(quota, cost, now)
}

/// What [`charge`] would answer.
#[must_use]
pub fn peek(state: &State, quota: &Quota, cost: u32, now: Timestamp) -> Outcome {
    state.0.peek::<true>(quota, cost, now)
}

/// Takes `cost` places at the end of the queue, whether or not they are free.
///
/// What was taken beyond the queue's capacity drains at the same pace, and nobody gets in line before it has
/// drained. It is at most as much as the queue holds.
pub fn debit(state: &mut State, quota: &Quota, cost: u32, _: Option<Receipt>, now: Timestamp) {
    state.0.debit(quota, cost, now);
}

/// Gives up a place in the queue.
///
/// Only the last in line can: if others queue behind it, they already know when to leave, and a newcomer in
/// the freed place would leave too close to them. So nothing happens without a receipt, nor with one that is
/// not for the last charge.
///
/// A request that has left does not give up all of it either: the next one still has to keep its distance, so
/// one unit stays taken.
pub fn refund(state: &mut State, quota: &Quota, cost: u32, receipt: Option<Receipt>, now: Timestamp) {
    state.refund(&Basis::of(quota), cost, receipt, now);
}

impl State {
    pub(crate) fn refund(&mut self, basis: &Basis, cost: u32, receipt: Option<Receipt>, now: Timestamp) {
        let left = self.0.left(now);
        let end = now.as_micros().saturating_add(bucket::ceil(left));
        if receipt.is_some_and(|receipt| receipt.reset_at().as_micros() == end) {
            let has_left = bucket::span(basis, cost) > left;
            self.0.give_back(basis, cost - u32::from(has_left), u64::MAX, now);
        }
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
