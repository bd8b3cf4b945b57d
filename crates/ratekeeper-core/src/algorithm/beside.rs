//! Two quotas at once on one key.
//!
//! When a quota changes, not everybody learns of it at the same moment, and a caller's tier may switch back
//! and forth. A state that is re-read under a smaller quota forgets what that cannot hold, and any state
//! forgets when it was used. So the state of the quota that was asked before is kept beside the current one,
//! for as long as somebody may still ask under it. Whatever is admitted counts in both, and a request is
//! decided by the state of the quota that it asks under. (A fixed window has a [`Guard`] as well.)
//!
//! So in any span no more is admitted than the larger of the two holds plus what comes back in that span
//! under the faster. The reason: if every state has at most as much room as a bucket of that size and that
//! rate which has counted the same, then this still holds after each admission and after each pause.
//!
//! With three or more quotas, the two that were asked last are kept. For all the others there is one bucket
//! of that size and that rate, the [loosest](super::loosest) of them: whatever is admitted counts there too,
//! and has to fit.

use std::time::Duration;

use super::counter::State;
use super::guard::Guard;
use super::loosest::Loosest;
use super::{Basis, Used, bucket};
use crate::{Quota, Receipt, Timestamp};

/// A state with the numbers under which it was last asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Side {
    pub(super) basis: Basis,
    pub(super) state: State,
    /// How much its quota holds. Zero if unknown, because nobody has asked under it since the other came.
    pub(super) max: u32,
    pub(super) guard: Guard,
}

/// What is kept beside the state of the quota that was asked last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Beside {
    /// How much the quota that was asked last holds.
    pub(super) max: u32,
    /// The guard of the quota that was asked last.
    pub(super) guard: Guard,
    pub(super) other: Side,
    /// If more than two quotas were asked recently: a bucket that admits at least as much as any of them.
    pub(super) loosest: Option<Loosest>,
    /// The time from which nobody is expected to ask under the other.
    pub(super) until: u64,
    /// When the other was put here, while it is unknown how much its quota holds; else zero. In that case
    /// nothing else shows whether the clock was set back.
    pub(super) since: u64,
}

impl Side {
    /// Until when it is worth keeping: for a full refill or, if that is unknown, for as long as anything in
    /// it counts.
    pub(super) fn until(&self, now: Timestamp) -> u64 {
        if self.max == 0 {
            return self.state.counts_until(&self.basis);
        }
        now.saturating_add(self.quota().full_refill()).as_micros()
    }

    /// The quota that it is counted under, if that is known.
    pub(super) fn quota(&self) -> Quota {
        self.basis.quota(self.max)
    }

    /// How much is used, but at most what it holds.
    pub(super) fn used(&self, now: Timestamp) -> Used {
        let used = self.state.used(&self.basis, now);
        if self.max == 0 { used } else { used.at_most(self.max) }
    }

    /// Gives back what was admitted under either quota.
    pub(super) fn refund(&mut self, cost: u32, receipt: Option<Receipt>, now: Timestamp) {
        let Self { basis, state, max, guard } = self;
        let before = state.window_count(basis, now);
        let receipt = match state {
            // The receipt's reset time is that of the quota that was asked. For this quota, only what the
            // charge itself took is known.
            State::TokenBucket(_) => receipt.map(|receipt| {
                let took =
                    Duration::from_micros(bucket::ceil(bucket::span(basis, cost).min(bucket::LONGEST)));
                Receipt::new(receipt.at(), took)
            }),
            _ => receipt,
        };
        state.refund(basis, cost, receipt, now);
        guard.give_back(basis, *max, before - state.window_count(basis, now), now);
    }

    /// Remembers that the clock was set back, if its quota is known. Without this, every look would cut the
    /// wait anew to the longest one from that moment on, until the clock is back where it was.
    fn settle_clock(&mut self, now: Timestamp) {
        self.state.settle_clock(&self.quota(), now);
        self.guard.settle(&self.basis, now);
    }

    /// Counts what was admitted under another quota.
    pub(super) fn press(&mut self, cost: u32, now: Timestamp) {
        self.state.press(&self.basis, self.max, cost, now);
        self.guard.press(&self.basis, self.max, cost, now);
    }
}

impl Beside {
    /// Keeps nothing for longer than if it were asked now.
    ///
    /// Where something would be kept for longer, the clock was set back, and from here on everything is
    /// counted from now. `basis` is that of the quota that was asked last.
    pub(super) fn settle_clock(&mut self, basis: &Basis, now: Timestamp) {
        self.guard.settle(basis, now);
        if let Some(loosest) = &mut self.loosest {
            loosest.side.settle_clock(now);
        }
        if self.other.max > 0 {
            self.other.settle_clock(now);
            self.until = self.until.min(self.other.until(now));
        } else if let Some(back) = self.since.checked_sub(now.as_micros()) {
            self.until -= back;
            self.since = now.as_micros();
        }
    }

    /// Counts what was admitted under the quota that was asked, whose basis is `basis`.
    pub(super) fn press(&mut self, basis: &Basis, cost: u32, now: Timestamp) {
        if cost > 0 {
            self.guard.press(basis, self.max, cost, now);
            self.other.press(cost, now);
            if let Some(loosest) = &mut self.loosest {
                loosest.press(&basis.quota(self.max), cost, now);
            }
        }
    }

    /// The time from which none of it matters.
    pub(super) fn matters_until(&self) -> u64 {
        self.loosest.as_ref().map_or(self.until, |loosest| self.until.max(loosest.matters_until()))
    }
}
