//! The quotas that a shard's keys were counted under, each stored once. Quotas that count alike are one.

use std::collections::HashMap;

use crate::Quota;

/// Quotas by number, each kept for as long as a slot refers to it.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    // A free entry has no slots. (This is not a slab, which would check on each access that the entry is not
    // free.)
    entries: Vec<Entry>,
    numbers: HashMap<[u64; 2], u32>,
    free: Vec<u32>,
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

    /// The number of a quota, for one more slot that refers to it.
    pub(super) fn acquire(&mut self, quota: &Quota) -> u32 {
        let Self { entries, numbers, free } = self;
        let number = *numbers.entry(*quota.identity()).or_insert_with(|| {
            let entry = Entry { quota: *quota, slots: 0 };
            match free.pop() {
                Some(number) => {
                    entries[number as usize] = entry;
                    number
                }
                None => {
                    entries.push(entry);
                    entries.len() as u32 - 1
                }
            }
        });
        self.acquire_again(number);
        number
    }

    /// One more slot refers to a quota that others refer to already.
    pub(super) fn acquire_again(&mut self, number: u32) {
        self.entries[number as usize].slots += 1;
    }

    /// One slot fewer refers to a quota. Returns whether it was the last one.
    pub(super) fn release(&mut self, number: u32) -> bool {
        let entry = &mut self.entries[number as usize];
        entry.slots -= 1;
        if entry.slots == 0 {
            self.numbers.remove(entry.quota.identity());
            self.free.push(number);
            return true;
        }
        false
    }
}
