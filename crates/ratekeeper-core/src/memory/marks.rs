//! A few bits of each hash, side by side, so that those of many slots are in one cache line.
//!
//! The marks tell a table where a hash is likely to be; the slot tells whether it is there. All marks
//! together take a twenty-fourth of the memory of all slots, so they are in a nearer cache, and the processor
//! proceeds with the next request while it waits for a slot. (Which of several slots it is cannot be
//! predicted. If it were read from the slots, every instruction up to the new state would wait for them: that
//! was 1.2 times as slow with 100,000 keys, and with a million.)

/// How many marks are compared at once. In a table that is as full as it gets, one slot in eighty stands
/// further from its home.
pub(super) const SPAN: usize = 8;

/// A one in each byte.
const ONES: u64 = u64::MAX / 0xff;

/// A mark for each slot; those of free slots have no meaning.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Marks(Box<[u8]>);

/// The second byte of the hash without its upper bit, which is always zero except in a free slot. The first
/// byte selects the shard, and the bytes above place the hash in it.
#[inline(always)]
const fn mark(tag: u64) -> u8 {
    (tag >> 8) as u8 & 0x7f
}

impl Marks {
    pub(super) fn new(tags: impl Iterator<Item = u64>) -> Self {
        Self(tags.map(mark).collect())
    }

    /// The address of the first mark.
    pub(super) fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }

    /// How many slots from here the first one stands that has the mark of this hash. If no slot within the
    /// span has it, or the table ends before, the number is meaningless.
    #[inline(always)]
    pub(super) fn first(&self, from: usize, tag: u64) -> usize {
        let Some(Ok(span)) = self.0.get(from..from + SPAN).map(<[u8; SPAN]>::try_from) else { return 0 };
        let differ = u64::from_le_bytes(span) ^ (u64::from(mark(tag)) * ONES);
        // Subtracting one from a byte whose upper bit is clear sets that bit if the byte is zero, and only
        // then, up to the first zero byte, which is the one wanted.
        let same = differ.wrapping_sub(ONES) & (ONES << 7);
        same.trailing_zeros() as usize / 8
    }

    /// A hash is inserted here, and those behind it, up to a place that was free, have moved on by one.
    pub(super) fn insert(&mut self, at: usize, free: usize, tag: u64) {
        self.0.copy_within(at..free, at + 1);
        self.0[at] = mark(tag);
    }

    /// The hash here is removed, those behind it have moved back, and the last place before `end` is free.
    pub(super) fn remove(&mut self, at: usize, end: usize) {
        self.0.copy_within(at + 1..end, at);
        self.0[end - 1] = mark(u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hash with this mark.
    fn tag(mark: u8) -> u64 {
        u64::from(mark) << 8 | 0xabcd_0000_0000_0042
    }

    /// No slot between a hash and its home is free; but marks are compared with those of free slots, too.
    #[test]
    fn free_slots_do_not_look_like_others() {
        for wanted in 0..0x7f {
            let marks = Marks::new((0..SPAN).map(|i| if i < 5 { u64::MAX } else { tag(wanted) }));
            assert_eq!(marks.first(0, tag(wanted)), 5, "{wanted}");
        }
    }

    #[test]
    fn the_first_of_equal_marks_is_found_whatever_the_others_are() {
        for wanted in 0..0x80 {
            for other in (0..0x80).filter(|other| *other != wanted) {
                for place in 0..=SPAN {
                    let marks =
                        Marks::new((0..2 * SPAN).map(|i| tag(if i < place { other } else { wanted })));
                    assert_eq!(marks.first(0, tag(wanted)), place, "{wanted} behind {other}");
                }
            }
        }
    }

    #[test]
    fn what_is_beyond_the_end_is_not_looked_at() {
        let marks = Marks::new([1, 2, 3, 4, 5, 6, 7, 8, 9].into_iter().map(tag));
        assert_eq!((marks.first(0, tag(8)), marks.first(1, tag(9)), marks.first(1, tag(1))), (7, 7, SPAN));
        assert_eq!((marks.first(2, tag(9)), marks.first(100, tag(9))), (0, 0));
        assert_eq!(Marks::default().first(0, tag(0)), 0);
    }
}
