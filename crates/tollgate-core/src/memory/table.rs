//! A hash table of slots, sorted by hash.
//!
//! Each hash has a home, in proportion to its value; a slot stands at its home or, if that is taken,
//! as close behind it as the order of hashes allows. So the table is a sorted array with gaps: a
//! search ends at the first larger hash, growing is one pass from left to right, and the size can be
//! any number.

use super::slot::Slot;

/// The most that a table is filled, as a share of its homes.
const FULL: (usize, usize) = (7, 8);
/// How full a table is after it has grown.
const ROOMY: (usize, usize) = (7, 10);
/// Free slots behind the last home, for those that are displaced from there.
const TAIL: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Table {
    // The last slot is always free, so that a search needs no other end.
    slots: Box<[Slot]>,
    homes: u32,
    len: u32,
}

/// Where a hash is, or where it would have to be inserted.
pub(super) type Found = Result<usize, usize>;

impl Table {
    pub(super) const fn len(&self) -> usize {
        self.len as usize
    }

    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    #[inline]
    pub(super) fn slot(&mut self, at: usize) -> &mut Slot {
        &mut self.slots[at]
    }

    #[inline]
    fn home(&self, tag: u64) -> usize {
        home(tag, self.homes as usize)
    }

    #[inline]
    pub(super) fn find(&self, tag: u64) -> Found {
        let mut at = self.home(tag);
        while let Some(slot) = self.slots.get(at) {
            if slot.tag == tag {
                return Ok(at);
            }
            if slot.tag == 0 || slot.tag > tag {
                break;
            }
            at += 1;
        }
        Err(at)
    }

    /// Whether a slot can be added without growing.
    pub(super) fn has_room(&self) -> bool {
        self.len() * FULL.1 < self.homes as usize * FULL.0
    }

    /// Adds a slot whose hash is not there yet. There must be room.
    pub(super) fn insert(&mut self, slot: Slot) {
        debug_assert!(self.has_room());
        loop {
            if let Err(at) = self.find(slot.tag) {
                let free = self.slots[at.min(self.slots.len())..].iter().position(|slot| slot.tag == 0);
                match free.map(|free| at + free) {
                    // Not the last one, which stays free.
                    Some(free) if free + 1 < self.slots.len() => {
                        self.slots.copy_within(at..free, at + 1);
                        self.slots[at] = slot;
                        self.len += 1;
                        return;
                    }
                    _ => self.rebuild(self.homes as usize),
                }
            }
        }
    }

    /// Removes the slot at this place, and moves those behind it back towards their homes.
    pub(super) fn remove(&mut self, at: usize) -> Slot {
        let removed = self.slots[at];
        let mut end = at + 1;
        while self.slots[end].tag != 0 && self.home(self.slots[end].tag) < end {
            end += 1;
        }
        self.slots.copy_within(at + 1..end, at);
        self.slots[end - 1] = Slot::default();
        self.len -= 1;
        removed
    }

    /// Takes a size that suits what is there and one more.
    pub(super) fn resize(&mut self) {
        self.rebuild(((self.len() + 1) * ROOMY.1).div_ceil(ROOMY.0).max(TAIL));
    }

    /// Whether the table is far larger than it need be.
    pub(super) fn is_sparse(&self) -> bool {
        self.homes as usize > TAIL && self.len < self.homes / 4
    }

    fn rebuild(&mut self, homes: usize) {
        let old = std::mem::take(&mut self.slots);
        let mut slots = Vec::with_capacity(homes + TAIL);
        for slot in old.iter().filter(|slot| slot.tag != 0) {
            slots.resize(slots.len().max(home(slot.tag, homes)), Slot::default());
            slots.push(*slot);
        }
        // Free slots behind the last one, whether or not it stands behind the last home.
        slots.resize(slots.len().max(homes) + TAIL, Slot::default());
        (self.slots, self.homes) = (slots.into_boxed_slice(), homes as u32);
    }
}

#[inline]
fn home(tag: u64, homes: usize) -> usize {
    ((u128::from(tag) * homes as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn slot(tag: u64) -> Slot {
        Slot { tag, ..Slot::default() }
    }

    fn check(table: &Table, model: &BTreeSet<u64>) {
        let tags: Vec<u64> = table.slots.iter().map(|slot| slot.tag).filter(|tag| *tag != 0).collect();
        assert!(tags.iter().eq(model.iter()), "sorted, and what the model has");
        assert_eq!(table.len(), model.len());
        for tag in model {
            assert!(table.find(*tag).is_ok());
        }
        assert!(table.slots.last().is_none_or(|last| last.tag == 0));
    }

    /// A table that is filled, emptied and resized at random holds what a set would.
    #[test]
    fn a_table_holds_what_a_set_holds() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        // Tags from all over, then all at the upper end, where the tail has to do.
        for shift in [0, 48] {
            let mut table = Table::default();
            let mut model = BTreeSet::new();
            for step in 0..20_000 {
                let tag = (random() % 600) << 54 | 1;
                let tag = if shift == 0 { tag } else { !((random() % 300) << 1) };
                if random() % 3 != 0 {
                    if model.insert(tag) {
                        if !table.has_room() {
                            table.resize();
                        }
                        table.insert(slot(tag));
                    }
                } else if let Ok(at) = table.find(tag) {
                    assert_eq!(table.remove(at).tag, tag);
                    assert!(model.remove(&tag));
                } else {
                    assert!(!model.contains(&tag));
                }
                if step % 1_000 == 0 {
                    check(&table, &model);
                    if table.is_sparse() {
                        table.resize();
                        check(&table, &model);
                    }
                }
            }
        }
    }

    #[test]
    fn growing_keeps_between_27_and_40_bytes_a_key() {
        let mut table = Table::default();
        for i in 1..200_000_u64 {
            if !table.has_room() {
                table.resize();
            }
            table.insert(slot(i.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1));
            if table.len() > 1_000 {
                let bytes = table.slots.len() * size_of::<Slot>() / table.len();
                assert!((27..=40).contains(&bytes), "{bytes} bytes a key at {} keys", table.len());
            }
        }
    }
}
