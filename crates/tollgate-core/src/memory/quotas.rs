//! The quotas that a shard's keys were counted under, each once.

use std::collections::HashMap;

use slab::Slab;

use crate::Quota;

/// Quotas by number, each for as long as a slot refers to it.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    entries: Slab<Entry>,
    numbers: HashMap<Quota, u32>,
}

#[derive(Debug)]
struct Entry {
    quota: Quota,
    slots: usize,
}

impl Quotas {
    #[inline]
    pub(super) fn get(&self, number: u32) -> &Quota {
        &self.entries[number as usize].quota
    }

    /// The number of a quota, for one more slot.
    pub(super) fn acquire(&mut self, quota: &Quota) -> u32 {
        let number = *self.numbers.entry(*quota).or_insert_with(|| {
            self.entries.insert(Entry { quota: *quota, slots: 0 }) as u32
        });
        self.entries[number as usize].slots += 1;
        number
    }

    /// One slot less that refers to a quota.
    pub(super) fn release(&mut self, number: u32) {
        let entry = &mut self.entries[number as usize];
        entry.slots -= 1;
        if entry.slots == 0 {
            self.numbers.remove(&entry.quota);
            self.entries.remove(number as usize);
        }
    }
}
