//! Room for keys: which one is evicted from a full shard, and which have expired.

use super::super::slot::{Pack, Slot};
use super::with_state::with_state;
use super::{Own, Shard};
use crate::algorithm::{
    Basis, PRESSED, fixed_window, leaky_bucket, sliding_log, sliding_window, token_bucket,
};
use crate::{Algorithm, Timestamp};

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

    /// Removes the key that matters least of those near this hash: one that has expired if there is one, else
    /// the one that has used least of its budget, and of those the one that is full again first.
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
        let least = near
            .filter(|(_, slot)| !slot.is_free())
            .take(SAMPLE)
            // Keys that the same request charges go last; otherwise its rules would push each other out.
            .min_by_key(|(_, slot)| (own.iter().any(|(tag, _)| *tag == slot.tag), self.weight(slot, now)));
        let Some((at, slot)) = least else { return };
        if self.expires_at(slot, now) <= now.as_micros() {
            self.rest.expired += 1;
        } else if self.rest.evictions_until_purge > 0 {
            self.rest.evictions_until_purge -= 1;
            self.rest.evicted += 1;
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
    fn weight(&self, slot: &Slot, now: Timestamp) -> (u32, u64) {
        if slot.is_of_two() {
            let counter = &self.rest.of_two[slot.packed.narrow as usize];
            return (counter.pressure(now), counter.expires_at().as_micros());
        }
        let quota = self.rest.quotas.get(slot.quota);
        let (used, expires_at) = with_state!(slot.packed, quota, now, self.rest.logs, |module, state| {
            (state.used(&Basis::of(quota), now), state.expires_at(&Basis::of(quota)))
        });
        let pressure = if expires_at <= now.as_micros() { 0 } else { used.pressure(quota.max()) };
        debug_assert!(pressure <= PRESSED);
        (pressure, expires_at)
    }

    /// Drops expired keys, and frees memory if few are left.
    pub(in crate::memory) fn sweep(&mut self, now: Timestamp) {
        self.purge(now);
        if self.table.is_sparse() {
            self.table.resize();
            self.rest.logs.shrink_to_fit();
            self.rest.of_two.shrink_to_fit();
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
            let left = self.expires_at(&slot, now).saturating_sub(now.as_micros());
            if left == 0 {
                // The slot that stood behind it may have moved here.
                self.remove(at);
                self.rest.expired += 1;
                continue;
            }
            // If the key takes longer than a full refill to expire, the clock was set back. Then it
            // expires a full refill from now, not only once the clock is back where it was.
            if slot.is_of_two() {
                self.rest.of_two[slot.packed.narrow as usize].settle_clock(now);
            } else {
                let quota = *self.rest.quotas.get(slot.quota);
                if u128::from(left) > quota.full_refill().as_micros() {
                    let slot = self.table.slot(at);
                    with_state!(mut slot.packed, &quota, now, self.rest.logs, |module, state| {
                        module::State::settle(state, &quota, now);
                    });
                }
            }
            at += 1;
        }
    }

    fn expires_at(&self, slot: &Slot, now: Timestamp) -> u64 {
        if slot.is_of_two() {
            return self.rest.of_two[slot.packed.narrow as usize].expires_at().as_micros();
        }
        let quota = self.rest.quotas.get(slot.quota);
        with_state!(slot.packed, quota, now, self.rest.logs, |module, state| state
            .expires_at(&Basis::of(quota)))
    }
}
