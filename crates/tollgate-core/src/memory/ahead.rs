//! What is asked of memory ahead of its use.
//!
//! A key of many is in no cache. To wait for it costs more than all else in a decision, and whoever waits under a lock
//! has others wait as well. So as soon as the hash is known, memory is asked for where the key is likely to be, and for the marks
//! that say so, and it answers while the clock is read and the lock is taken. (The clock is what makes it worth the
//! while: reading the time-stamp counter holds up all loads that come after it.)
//!
//! Where the key is likely to be is in the shard, under its lock; so it is written down here as well, for those who do not
//! have the lock.

use super::table::{Home, Table};
use crate::sync::{AtomicUsize, Ordering};

/// How much of memory comes at once, in bytes.
const LINE: usize = 64;

/// Where a shard's table is, as of late.
///
/// The numbers are read and written one by one, so they may be of different tables, and by the time that the
/// shard is locked of none that there is. Nothing depends on the addresses but what memory is asked for, and
/// [`Home`] says what it is the home in.
#[derive(Debug, Default)]
pub(super) struct Whereabouts {
    slots: AtomicUsize,
    homes: AtomicUsize,
    marks: AtomicUsize,
}

impl Whereabouts {
    /// Writes down where the table is now. Mostly it is where it was; then nothing is written, as others read it all the
    /// time.
    pub(super) fn tell(&self, table: &Table) {
        let now = [table.slots().as_ptr().addr(), table.homes(), table.marks().address()];
        for (told, now) in [&self.slots, &self.homes, &self.marks].into_iter().zip(now) {
            if told.load(Ordering::Relaxed) != now {
                told.store(now, Ordering::Relaxed);
            }
        }
    }

    /// Asks memory for where a key is likely to be, and returns its home there.
    #[inline(always)]
    pub(super) fn ask(&self, tag: u64) -> Home {
        let home = Home::new(tag, self.homes.load(Ordering::Relaxed));
        ask_for_two_lines(self.slots.load(Ordering::Relaxed), home.words());
        ask_to_read(self.marks.load(Ordering::Relaxed), home.at());
        home
    }
}

// What is to be changed no other processor is to keep. `_mm_prefetch` can say so as well, but is compiled to a hint to read, after
// which the line has to be asked for a second time. Marks are mostly but read.
//
// SAFETY, of both: these are hints. They read and write nothing that a program can see, change no register and no flag, and take
// any address, of this process or not, without a fault. `prefetchw` may be used wherever there is long mode (AMD64 Architecture
// Programmer's Manual, volume 3); a processor that has no use for it takes it for a `nop`.

/// Asks for the line that is so many bytes from an address, to read it.
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

/// Asks for the line that is so many words of eight bytes from an address, and for the next, to change them.
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

// Elsewhere, and under Miri, which knows no assembly, a decision waits for memory when it needs it.

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

    /// Of whatever tables the numbers are, a key is found.
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
            table.insert(Slot { tag, ..Slot::FREE });
            known.push(tag);
            // Told now and then, and once in part.
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

    /// Whatever of the two numbers a reader sees while they are written, it finds its key in the table that there is.
    #[test]
    fn loom_a_key_is_found_while_its_whereabouts_are_written() {
        let tag = 0x9e37_79b9_7f4a_7c15_u64;
        let tables = [20, 200].map(|others| {
            let mut table = Table::default();
            for i in 1..others {
                if !table.has_room() {
                    table.resize();
                }
                table.insert(Slot { tag: tag.wrapping_mul(2 * i + 1), ..Slot::FREE });
            }
            table.resize();
            table.insert(Slot { tag, ..Slot::FREE });
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
