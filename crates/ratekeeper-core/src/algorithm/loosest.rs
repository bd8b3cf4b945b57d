//! More than two quotas at once on one key.
//!
//! Only two quotas are counted individually. A quota that was dropped for another and is asked again begins
//! with what is known from those two. So if three were asked in turn, the largest of them would start again
//! in each round. Hence, from the third on, everything that is admitted also counts in one bucket and has to
//! fit there. It is as large as the largest of them, and as fast as the fastest.
//!
//! By what it has counted, that bucket denies nobody whom the states of all quotas would admit, if there were
//! one for each: none of them ever has more room. What came before it is assumed to be the most that it may
//! have been. And nobody has to wait there for longer than the quota that is asked takes to be full, since
//! that quota is not faster.

use std::time::Duration;

use super::beside::{Beside, Side};
use super::change::wait_of;
use super::counter::State;
use super::guard::Guard;
use super::{Basis, Counter, Used};
use crate::decision::Budget;
use crate::{Algorithm, Outcome, Quota, Timestamp};

/// How much a quota admits at once, at most. Around its edge, a window admits twice what it holds.
const fn most_at_once(quota: &Quota) -> u32 {
    match quota.algorithm() {
        Algorithm::FixedWindow | Algorithm::SlidingWindow => quota.max().saturating_mul(2),
        _ => quota.max(),
    }
}

/// A bucket as fast as a quota.
const fn as_fast_as(quota: &Quota) -> Basis {
    Basis { algorithm: Algorithm::TokenBucket, units: quota.rate_units(), micros: quota.rate_micros() }
}

/// How long everything that a quota admits at once takes to come back.
const fn longest_refill(quota: &Quota) -> Duration {
    let refill = quota.full_refill();
    if matches!(quota.algorithm(), Algorithm::FixedWindow) { refill.saturating_mul(2) } else { refill }
}

fn is_faster(one: &Basis, other: &Basis) -> bool {
    let product = |a: &Basis, b: &Basis| u128::from(a.units) * u128::from(b.micros.get());
    product(one, other) > product(other, one)
}

/// A bucket that admits at least as much as any of the quotas that were asked recently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Loosest {
    pub(super) side: Side,
    /// What was used beyond what it holds, under a quota that nobody has asked since another came. How much
    /// that quota holds is unknown until somebody asks.
    pub(super) excess: u32,
    /// The time from which all quotas under which anything was admitted are full.
    pub(super) until: u64,
}

impl Loosest {
    /// A bucket as loose as `quota`, of which `used` is used.
    fn of(quota: &Quota, used: Used, now: Timestamp) -> Self {
        let (basis, max) = (as_fast_as(quota), most_at_once(quota));
        let side =
            Side { basis, state: State::seed(&basis.quota(max), used, now), max, guard: Guard::default() };
        let until = now.saturating_add(longest_refill(quota)).as_micros();
        Self { side, excess: used.ceil().saturating_sub(max), until }
    }

    /// Makes it at least as loose as a quota. What is used stays used.
    pub(super) fn loosen(&mut self, quota: &Quota, now: Timestamp) {
        let (Self { side, excess, .. }, basis) = (self, as_fast_as(quota));
        let (more, faster) = (most_at_once(quota).saturating_sub(side.max), is_faster(&basis, &side.basis));
        let known = (*excess).min(more);
        let used = side.used(now).and(known);
        *excess -= known;
        side.max += more;
        if faster {
            side.basis = basis;
        }
        if faster || known > 0 {
            side.state = State::seed(&side.quota(), used, now);
        }
    }

    /// Counts what was admitted under a quota.
    pub(super) fn press(&mut self, quota: &Quota, cost: u32, now: Timestamp) {
        self.side.press(cost, now);
        self.until = self.until.max(now.saturating_add(longest_refill(quota)).as_micros());
    }

    /// The time from which it denies nobody.
    pub(super) fn matters_until(&self) -> u64 {
        if self.excess > 0 {
            return self.until;
        }
        self.until.min(self.side.state.counts_until(&self.side.basis))
    }

    /// How long until `cost` fits, in microseconds.
    fn wait(&self, cost: u32, now: Timestamp) -> u64 {
        let wait = wait_of(&self.side.state.peek(&self.side.quota(), cost, now));
        wait.unwrap_or(u64::MAX).min(self.until.saturating_sub(now.as_micros()))
    }

    /// How much fits.
    fn room(&self, now: Timestamp) -> u32 {
        self.side.state.peek(&self.side.quota(), 1, now).remaining()
    }
}

impl Beside {
    /// Whether a quota of the other's rate is not the other, but one that holds more or less. The state does
    /// not know, or will not know, what was used beyond what it holds.
    pub(super) fn is_another(&self, quota: &Quota, now: Timestamp) -> bool {
        match self.other.max {
            0 => self.other.state.is_beyond(quota, now) || self.other.used(now).ceil() > quota.max(),
            max => max != quota.max(),
        }
    }
}

impl Counter {
    /// Begins to count what all quotas admit together, before one of those that are counted is dropped.
    pub(super) fn count_all(&self, beside: &mut Beside, now: Timestamp) {
        if beside.loosest.is_some() {
            return;
        }
        let own = match &self.state {
            // What it admitted before its edge counts as well.
            State::FixedWindow(window) => window.used_twice(&self.basis, beside.max, now),
            _ => self.used(now),
        };
        let other = match &beside.other.state {
            State::FixedWindow(window) if beside.other.max > 0 => {
                window.used_twice(&beside.other.basis, beside.other.max, now)
            }
            _ => beside.other.used(now),
        };
        let mut loosest = Loosest::of(&self.basis.quota(beside.max), own.or_more(other), now);
        // A fixed window may have admitted as much before its edge, which takes another period.
        let edge = match beside.other.basis.algorithm {
            Algorithm::FixedWindow => beside.other.basis.period(),
            _ => 0,
        };
        // For a quota that is not known, everything that was admitted since counts, so its state may exceed
        // what the quota ever holds.
        let others_end = if beside.other.max == 0 { beside.until } else { beside.other.until(now) };
        loosest.until = loosest.until.max(others_end.saturating_add(edge));
        // Otherwise nobody has asked under it since; if somebody does, it is known then.
        if beside.other.max > 0 {
            loosest.loosen(&beside.other.quota(), now);
        }
        beside.loosest = Some(loosest);
    }

    /// Whether anything besides the state limits charges.
    pub(super) fn is_limited(&self) -> bool {
        self.guard().is_some() || self.loosest().is_some()
    }

    fn loosest(&self) -> Option<&Loosest> {
        self.beside.as_ref()?.loosest.as_ref()
    }

    /// The answer for a cost that has to fit the state and whatever else limits charges.
    pub(super) fn limited(&self, quota: &Quota, cost: u32, now: Timestamp) -> Outcome {
        let own = |cost: u32| self.guarded(quota, cost, now);
        let Some(loosest) = self.loosest() else { return own(cost) };
        let wait = |cost: u32| loosest.wait(cost, now);
        let (by_itself, room) = (own(cost), loosest.room(now));
        let remaining = by_itself.remaining().min(room);
        let refill = if by_itself.remaining() <= room { by_itself.budget().refill_micros } else { 0 };
        let budget = Budget {
            limit: quota.max(),
            remaining,
            reset_micros: by_itself.budget().reset_micros.max(wait(quota.max())),
            refill_micros: if remaining < quota.max() { refill.max(wait(remaining + 1)) } else { 0 },
        };
        if cost > quota.max() {
            Outcome::never(budget)
        } else if by_itself.is_admitted() && wait(cost) == 0 {
            Outcome::admit(budget, 0).with_verdict_of(by_itself)
        } else {
            Outcome::deny(budget, wait_of(&by_itself).unwrap_or(u64::MAX).max(wait(cost)))
        }
    }
}
