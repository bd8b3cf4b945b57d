//! A hash table of slots, sorted by hash.
//!
//! Each hash has a home, in proportion to its value. A slot stands at its home or, if that is taken, as close
//! behind it as the order of hashes allows. So the table is a sorted array with gaps: a search ends at the
//! first larger hash, growing is one pass from left to right, and the size can be any number.

use super::slot::Slot;

/// How full a table may get, as a share of its homes.
const FULL: (usize, usize) = (3, 4);
/// How full a table is after it has grown.
const ROOMY: (usize, usize) = (16, 25);
/// Free slots behind the last home, for slots that are displaced from there.
const TAIL: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Table {
    // The last slot is always free, so that a search always ends.
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
    pub(super) fn home(&self, tag: u64) -> usize {
        home(tag, self.homes as usize)
    }

    #[inline(always)]
    pub(super) fn find(&self, tag: u64) -> Found {
        let home = self.home(tag);
        let behind = self.slots.get(home..).unwrap_or_default();
        let at = home + behind.iter().position(|slot| slot.tag >= tag).unwrap_or(0);
        if self.slots.get(at).is_some_and(|slot| slot.tag == tag) { Ok(at) } else { Err(at) }
    }

    /// Whether a slot can be added without growing.
    pub(super) fn has_room(&self) -> bool {
        self.len() * FULL.1 < self.homes as usize * FULL.0
    }

    /// Whether many slots can be added without growing: a sixteenth of all homes. If not, all slots would
    /// soon be searched again for expired ones.
    pub(super) fn is_roomy(&self) -> bool {
        self.len() * 16 < self.homes as usize * 11
    }

    /// Adds a slot whose hash is not there yet. There must be room.
    pub(super) fn insert(&mut self, slot: Slot) {
        debug_assert!(self.has_room());
        loop {
            if let Err(at) = self.find(slot.tag) {
                let free = self.slots[at..].iter().position(Slot::is_free);
                match free.map(|free| at + free) {
                    // Not the last slot, which stays free.
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
        while !self.slots[end].is_free() && self.home(self.slots[end].tag) < end {
            end += 1;
        }
        self.slots.copy_within(at + 1..end, at);
        self.slots[end - 1] = Slot::FREE;
        self.len -= 1;
        removed
    }

    /// Takes a size that suits the present slots and one more.
    pub(super) fn resize(&mut self) {
        self.rebuild(((self.len() + 1) * ROOMY.1).div_ceil(ROOMY.0).max(TAIL));
    }

    /// Whether the table is far larger than it needs to be.
    pub(super) fn is_sparse(&self) -> bool {
        self.homes as usize > TAIL && self.len < self.homes / 4
    }

    fn rebuild(&mut self, homes: usize) {
        let old = std::mem::take(&mut self.slots);
        let mut slots = Vec::with_capacity(homes + TAIL);
        for slot in old.iter().filter(|slot| !slot.is_free()) {
            slots.resize(slots.len().max(home(slot.tag, homes)), Slot::FREE);
            slots.push(*slot);
        }
        // Leaves free slots behind the last one, whether or not it stands behind the last home.
        slots.resize(slots.len().max(homes) + TAIL, Slot::FREE);
        (self.slots, self.homes) = (slots.into_boxed_slice(), homes as u32);
    }
}

#[inline]
fn home(tag: u64, homes: usize) -> usize {
    // Cast to 32 bits, which it fits in, so that adding to it is known not to overflow.
    ((u128::from(tag) * homes as u128) >> 64) as u32 as usize
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn slot(tag: u64) -> Slot {
        Slot { tag, ..Slot::FREE }
    }

    fn check(table: &Table, model: &BTreeSet<u64>) {
        let tags: Vec<u64> =
            table.slots.iter().map(|slot| slot.tag).filter(|tag| *tag != Slot::FREE.tag).collect();
        assert!(tags.iter().eq(model.iter()), "sorted, and what the model has");
        assert_eq!(table.len(), model.len());
        for tag in model {
            assert!(table.find(*tag).is_ok());
        }
        assert!(table.slots.last().is_none_or(Slot::is_free));
    }

    /// Removing one slot from a full table does not make it roomy; once the table has grown, many fit.
    #[test]
    fn a_table_that_has_grown_is_roomy() {
        let mut table = Table::default();
        assert!(!table.is_roomy());
        table.resize();
        for tag in 1..=10_000_u64 {
            if !table.has_room() {
                let first = table.slots.iter().position(|slot| !slot.is_free()).unwrap();
                table.remove(first);
                assert!(table.has_room() && !table.is_roomy(), "{}", table.len());
                table.resize();
                assert!(
                    table.is_roomy()
                        && table.homes as usize / 16 < table.homes as usize * 3 / 4 - table.len()
                );
            }
            table.insert(slot(tag.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        }
    }

    /// A table that is filled, emptied and resized at random holds the same as a set.
    #[test]
    fn a_table_holds_what_a_set_holds() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        // Tags from the whole range, then all at the upper end, where only the tail has room.
        for shift in [0, 48] {
            let mut table = Table::default();
            let mut model = BTreeSet::new();
            for step in 0..20_000 {
                let tag = (random() % 600) << 54 | 1;
                let tag = if shift == 0 { tag } else { !((random() % 300) << 1 | 1) };
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
    fn growing_keeps_between_32_and_40_bytes_a_key() {
        let mut table = Table::default();
        for i in 1..200_000_u64 {
            if !table.has_room() {
                table.resize();
            }
            table.insert(slot(i.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1));
            if table.len() > 1_000 {
                let bytes = (table.slots.len() * size_of::<Slot>()).div_ceil(table.len());
                assert!((32..=40).contains(&bytes), "{bytes} bytes a key at {} keys", table.len());
            }
        }
    }
}
