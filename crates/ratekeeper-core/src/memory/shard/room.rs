//! Room for keys: which one is evicted from a full shard, and which have expired.

use smallvec::SmallVec;

use super::super::slot::Slot;
use super::{Own, Shard};
use crate::algorithm::{Count, Counted};
use crate::{Quota, Timestamp};

/// The pressure of a budget that is used up.
const PRESSED: u32 = 1 << 16;

/// How many keys are compared to find the one to evict.
const SAMPLE: usize = 16;

impl Shard {
    /// Ensures that one more key can be inserted near this hash.
    pub(super) fn make_room(&mut self, tag: u64, own: Own<'_>, now: Timestamp) {
        if self.table.len() >= self.rest.max_keys {
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
    fn evict(&mut self, tag: u64, own: Own<'_>, now: Timestamp) {
        let (Ok(from) | Err(from)) = self.table.find(tag);
        let (before, behind) = self.table.slots().split_at(from.min(self.table.slots().len()));
        let near = (from..).zip(behind).chain((0..).zip(before));
        let near: SmallVec<[usize; SAMPLE]> =
            near.filter(|(_, slot)| !slot.is_free()).take(SAMPLE).map(|(at, _)| at).collect();
        // Keys that the same request charges go last; otherwise its rules would push each other out.
        let least = near.iter().copied().min_by_key(|at| {
            let slot = &self.table.slots()[*at];
            (own.iter().any(|(tag, _)| *tag == slot.tag), self.weight(slot, now))
        });
        let Some(at) = least else { return };
        if self.expires_at(&self.table.slots()[at]) <= now.as_micros() {
            self.rest.expired += 1;
        } else if self.rest.evictions_until_purge > 0 {
            self.rest.evictions_until_purge -= 1;
            self.rest.evicted += 1;
            if self.table.slot(at).was_denied() {
                // All of them were. From now on, that counts only for those that are denied again.
                near.iter().for_each(|at| self.table.slot(*at).set_denied(false));
            }
        } else {
            self.purge(now);
            self.rest.evictions_until_purge = 1 + self.table.len() / 16;
            if self.table.len() >= self.rest.max_keys {
                self.evict(tag, own, now);
            }
            return;
        }
        self.remove(at);
    }

    /// How much a key matters: the share of its budget that is used, and until when that matters.
    fn weight(&self, slot: &Slot, now: Timestamp) -> (bool, u32, u64) {
        let pressure = if slot.is_spilled() {
            let counter = &self.rest.spilled[slot.packed.narrow as usize];
            let of = |counted: &Counted| pressure(counted.state.get(), &counted.quota, now);
            of(&counter.current).max(counter.previous.as_deref().map_or(0, of))
        } else {
            self.rest.read(slot, |state, quota| pressure(state, quota, now))
        };
        let expires_at = self.expires_at(slot);
        (expires_at > now.as_micros() && slot.was_denied(), pressure, expires_at)
    }

    /// Drops expired keys, and frees memory if few are left.
    pub(in crate::memory) fn sweep(&mut self, now: Timestamp) {
        self.purge(now);
        if self.table.is_sparse() {
            self.table.resize();
            self.rest.logs.shrink_to_fit();
            self.rest.spilled.shrink_to_fit();
            self.tell_whereabouts();
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
            let left = self.expires_at(&slot).saturating_sub(now.as_micros());
            if left == 0 {
                // The slot that stood behind it may have moved here.
                self.remove(at);
                self.rest.expired += 1;
                continue;
            }
            // If the clock was set back, the key expires a full refill from now, not only once the clock is
            // back where it was.
            if slot.is_spilled() {
                self.rest.spilled[slot.packed.narrow as usize].settle_clock(now);
            } else {
                self.update(at, |state, quota| state.settle(quota, now));
            }
            at += 1;
        }
    }

    fn expires_at(&self, slot: &Slot) -> u64 {
        if slot.is_spilled() {
            return self.rest.spilled[slot.packed.narrow as usize].expires_at().as_micros();
        }
        self.rest.read(slot, |state, quota| state.expires_at(quota))
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
