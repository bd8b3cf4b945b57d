//! Which key is evicted from a full shard, and which have expired.

use smallvec::SmallVec;

use super::shard::Shard;
use super::slot::Slot;
use crate::algorithm::Count;
use crate::{Quota, Timestamp};

/// The pressure of a budget that is used up.
const PRESSED: u32 = 1 << 16;

/// How many keys are compared to find the one to evict.
const SAMPLE: usize = 16;

impl Shard {
    /// Ensures that one more key can be inserted near this hash.
    pub(super) fn make_room(&mut self, tag: u64, own: &[u64], now: Timestamp) {
        if self.table.len() >= self.keys.max {
            self.evict(tag, own, now);
        }
        if !self.table.has_room() {
            self.purge(now);
            if !self.table.is_roomy() {
                self.table.resize();
            }
        }
    }

    /// Removes the key that matters least of those near this hash: one that has expired if there is one; else,
    /// of those that were not denied recently if there is one, the one that has used least of its budget, and
    /// of those the one that is full again first.
    ///
    /// The places of keys depend on a hash that callers do not know, so they cannot choose their neighbours.
    /// A caller with less than one unit left is pushed out only if none of its neighbours has one left
    /// either, and all of them take longer to be full again.
    ///
    /// If no neighbour has expired, other keys may have: earlier keys have taken the places of expired
    /// neighbours first. So before a key that still counts is evicted, the whole shard is searched for
    /// expired ones, once for every sixteenth of its keys that is evicted in this way.
    fn evict(&mut self, tag: u64, own: &[u64], now: Timestamp) {
        let (Ok(from) | Err(from)) = self.table.find(tag);
        let (before, behind) = self.table.slots().split_at(from.min(self.table.slots().len()));
        let near = (from..).zip(behind).chain((0..).zip(before));
        let near: SmallVec<[usize; SAMPLE]> =
            near.filter(|(_, slot)| !slot.is_free()).take(SAMPLE).map(|(at, _)| at).collect();
        // Keys that the same request charges go last; otherwise its rules would push each other out.
        let least = near.iter().copied().min_by_key(|at| {
            let slot = &self.table.slots()[*at];
            (own.contains(&slot.tag), self.weight(slot, now))
        });
        let Some(at) = least else { return };
        if self.expires_at(&self.table.slots()[at]) <= now.as_micros() {
            self.keys.expired += 1;
        } else if self.keys.evictions_until_purge > 0 {
            self.keys.evictions_until_purge -= 1;
            self.keys.evicted += 1;
            if self.table.slot(at).held.was_denied() {
                // All of them were. From now on, that counts only for those that are denied again.
                near.iter().for_each(|at| self.table.slot(*at).held.set_denied(false));
            }
        } else {
            self.purge(now);
            self.keys.evictions_until_purge = 1 + self.table.len() / 16;
            if self.table.len() >= self.keys.max {
                self.evict(tag, own, now);
            }
            return;
        }
        self.remove(at);
    }

    /// How much a key matters: whether it was denied recently, the share of its budget that is used, and until
    /// when that matters.
    fn weight(&self, slot: &Slot, now: Timestamp) -> (bool, u32, u64) {
        let states = self.states.each(&slot.held).iter();
        let pressures = states.map(|held| self.states.read(held, |state, quota| pressure(state, quota, now)));
        let expires_at = self.expires_at(slot);
        (expires_at > now.as_micros() && slot.held.was_denied(), pressures.max().unwrap_or(0), expires_at)
    }

    fn expires_at(&self, slot: &Slot) -> u64 {
        let states = self.states.each(&slot.held).iter();
        states.map(|held| self.states.read(held, |state, quota| state.expires_at(quota))).max().unwrap_or(0)
    }

    /// Drops expired keys, and frees memory if few are left.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        self.purge(now);
        if self.table.is_sparse() {
            self.table.resize();
            self.states.shrink();
        }
    }

    fn purge(&mut self, now: Timestamp) {
        let mut at = 0;
        while at < self.table.slots().len() {
            let slot = self.table.slots()[at];
            if slot.is_free() {
                at += 1;
                continue;
            }
            let expires_at = self.expires_at(&slot);
            if expires_at <= now.as_micros() {
                // The slot that stood behind it may have moved here.
                self.remove(at);
                self.keys.expired += 1;
                continue;
            }
            // If the clock was set back, the key expires a full refill from now, not only once the clock is
            // back where it was.
            self.states.settle(&mut self.table.slot(at).held, now);
            at += 1;
        }
        self.states.quotas.drop_unused();
    }
}

/// The share of a budget that is used. It is [`PRESSED`] as soon as less than one unit is left: such a budget
/// denies, even if half of a unit has come back.
fn pressure(state: &dyn Count, quota: &Quota, now: Timestamp) -> u32 {
    let (used, max) = (state.used(quota, now), f64::from(quota.max()));
    if max - used < 1.0 {
        return PRESSED;
    }
    ((used / max * f64::from(PRESSED)).ceil() as u32).min(PRESSED)
}
