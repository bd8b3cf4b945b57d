//! Prefetches memory before it is used.
//!
//! With many keys, a key's slot is in no cache. Waiting for it costs more than everything else in a decision,
//! and a thread that waits under a lock makes others wait as well. So as soon as the hash is known, the slots
//! where the key is likely to be are prefetched, along with the marks that say so. They arrive while the
//! clock is read and the lock is taken. (The clock is what makes this worthwhile: reading the time-stamp
//! counter holds up all loads that come after it.)
//!
//! The location of the table is in the shard, under its lock. So it is recorded here as well, for callers
//! that do not hold the lock.

use super::table::{Home, Table};
use crate::sync::{AtomicUsize, Ordering};

/// The size of a cache line, in bytes.
const LINE: usize = 64;

/// The location of a shard's table, as last recorded.
///
/// The numbers are read and written one by one, so they may belong to different tables, and by the time the
/// shard is locked, to none that still exists. The addresses determine only what is prefetched, and [`Home`]
/// carries the size of the table that it is a home in.
#[derive(Debug, Default)]
pub(super) struct Whereabouts {
    slots: AtomicUsize,
    homes: AtomicUsize,
    marks: AtomicUsize,
}

impl Whereabouts {
    /// Records where the table is now. Mostly it has not moved; then nothing is written, because other
    /// threads read these numbers all the time.
    pub(super) fn tell(&self, table: &Table) {
        let now = [table.slots().as_ptr().addr(), table.homes(), table.marks().address()];
        for (told, now) in [&self.slots, &self.homes, &self.marks].into_iter().zip(now) {
            if told.load(Ordering::Relaxed) != now {
                told.store(now, Ordering::Relaxed);
            }
        }
    }

    /// Prefetches the lines where a key is likely to be, and returns its home there.
    #[inline(always)]
    pub(super) fn ask(&self, tag: u64) -> Home {
        let home = Home::new(tag, self.homes.load(Ordering::Relaxed));
        ask_for_two_lines(self.slots.load(Ordering::Relaxed), home.words());
        ask_to_read(self.marks.load(Ordering::Relaxed), home.at());
        home
    }
}

// Slots are prefetched for writing, so that no other processor keeps the line. `_mm_prefetch` can ask for
// that as well, but it is compiled to a hint to read, after which the line has to be requested a second time.
// Marks are mostly only read.
//
// SAFETY, of both: these are hints. They read and write nothing that a program can observe, change no
// register and no flag, and accept any address, of this process or not, without a fault. `prefetchw` may be
// used wherever there is long mode (AMD64 Architecture Programmer's Manual, volume 3); a processor that has
// no use for it treats it as a `nop`.

/// Prefetches the line that is this many bytes from an address, to read it.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
#[allow(unsafe_code)]
fn ask_to_read(address: usize, bytes: usize) {
    unsafe {
        std::arch::asm!(
            "prefetcht0 [{address} + {bytes}]",
            address = in(reg) address,
            bytes = in(reg) bytes,
            options(nostack, preserves_flags, readonly),
        );
    }
}

/// Prefetches the line that is this many words of eight bytes from an address, and the next one, to change
/// them.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
#[allow(unsafe_code)]
fn ask_for_two_lines(address: usize, words: usize) {
    unsafe {
        std::arch::asm!(
            "prefetchw [{address} + 8 * {words}]",
            "prefetchw [{address} + 8 * {words} + {line}]",
            address = in(reg) address,
            words = in(reg) words,
            line = const LINE,
            options(nostack, preserves_flags, readonly),
        );
    }
}

// On other targets, and under Miri, which does not support assembly, a decision waits for memory when it
// needs it.

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn ask_to_read(_: usize, _: usize) {}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn ask_for_two_lines(_: usize, _: usize) {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::slot::Slot;
    use super::*;

    #[test]
    fn memory_can_be_asked_for_any_address() {
        let here = [0_u64; 2];
        for address in
            [0, here.as_ptr().addr()].into_iter().chain((0..usize::BITS).map(|bit| usize::MAX << bit))
        {
            for bit in 0..usize::BITS {
                ask_to_read(address, 1 << bit);
                ask_for_two_lines(address, 1 << bit);
            }
        }
        assert_eq!(here, [0, 0]);
    }

    /// A key is found no matter which tables the numbers belong to.
    #[test]
    fn a_key_is_found_however_old_its_whereabouts_are() {
        let whereabouts = Whereabouts::default();
        let mut table = Table::default();
        let tags = (1..2_000_u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut known = Vec::new();
        for (i, tag) in tags.enumerate() {
            if !table.has_room() {
                table.resize();
            }
            table.insert(Slot::new(tag, Slot::FREE.packed, 0));
            known.push(tag);
            // Recorded now and then, and sometimes only in part.
            if i % 300 == 0 {
                whereabouts.tell(&table);
            } else if i % 700 == 0 {
                whereabouts.homes.store(usize::MAX, Ordering::Relaxed);
            }
            for tag in &known {
                let at = table.find(*tag).expect("a key that was inserted");
                assert_eq!(table.find_from(table.likely(*tag, whereabouts.ask(*tag)), *tag), Ok(at));
            }
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::super::slot::Slot;
    use super::*;

    /// Whichever of the numbers a reader sees while they are written, it finds its key in the current table.
    #[test]
    fn loom_a_key_is_found_while_its_whereabouts_are_written() {
        let tag = 0x9e37_79b9_7f4a_7c15_u64;
        let tables = [20, 200].map(|others| {
            let mut table = Table::default();
            for i in 1..others {
                if !table.has_room() {
                    table.resize();
                }
                table.insert(Slot::new(tag.wrapping_mul(2 * i + 1), Slot::FREE.packed, 0));
            }
            table.resize();
            table.insert(Slot::new(tag, Slot::FREE.packed, 0));
            table
        });
        let tables = std::sync::Arc::new(tables);
        loom::model(move || {
            let whereabouts = Arc::new(Whereabouts::default());
            whereabouts.tell(&tables[0]);
            let writer = {
                let (whereabouts, tables) = (Arc::clone(&whereabouts), std::sync::Arc::clone(&tables));
                thread::spawn(move || whereabouts.tell(&tables[1]))
            };
            let home = whereabouts.ask(tag);
            for table in &*tables {
                let found = table.find_from(table.likely(tag, home), tag);
                assert!(found.is_ok() && found == table.find(tag), "{found:?}");
            }
            writer.join().unwrap();
        });
    }
}
