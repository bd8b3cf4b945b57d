//! The quotas that a shard's keys were counted under, each stored once. Quotas that count alike are one.

use std::collections::HashMap;

use crate::Quota;

/// Quotas by number. One that no state refers to is kept until the next sweep.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    entries: Vec<Entry>,
    numbers: HashMap<[u64; 2], u32>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Entry {
    quota: Quota,
    /// How many states refer to it.
    states: usize,
}

impl Quotas {
    #[inline]
    pub(super) fn get(&self, number: u32) -> &Quota {
        &self.entries[number as usize].quota
    }

    /// The number of a quota, for one more state that refers to it.
    pub(super) fn acquire(&mut self, quota: &Quota) -> u32 {
        let Self { entries, numbers, free } = self;
        let number = *numbers.entry(*quota.identity()).or_insert_with(|| {
            let entry = Entry { quota: *quota, states: 0 };
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
        entries[number as usize].states += 1;
        number
    }

    /// One state fewer refers to a quota.
    pub(super) fn release(&mut self, number: u32) {
        self.entries[number as usize].states -= 1;
    }

    /// Drops the quotas that no state refers to.
    pub(super) fn drop_unused(&mut self) {
        let Self { entries, numbers, free } = self;
        numbers.retain(|_, number| {
            let used = entries[*number as usize].states > 0;
            if !used {
                free.push(*number);
            }
            used
        });
    }
}
