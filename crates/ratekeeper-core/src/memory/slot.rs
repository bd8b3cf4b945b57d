//! What the table keeps for one key: 24 bytes.

use crate::algorithm::{FullAt, fixed_window, leaky_bucket, sliding_window, token_bucket};
use crate::{Quota, Timestamp};

/// One key's count: the hash of rule and key, the state in 12 bytes, and the number of the quota that it was
/// counted under. The key itself is not kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// The hash; the largest number if the slot is free.
    pub(super) tag: u64,
    pub(super) packed: Packed,
    /// The number of the quota in the shard's [`Quotas`](super::quotas::Quotas).
    pub(super) quota: u32,
}

const _: () = assert!(size_of::<Slot>() == 24);

impl Slot {
    /// Stands in for the number of a quota if there are two.
    const OF_TWO: u32 = u32::MAX - 1;

    pub(super) const fn of_two(tag: u64, at: u32) -> Self {
        Self { tag, packed: Packed { wide: 0, narrow: at }, quota: Self::OF_TWO }
    }

    // Larger than any hash, so that a search for the first larger hash stops here as well.
    pub(super) const FREE: Self = Self { tag: u64::MAX, packed: Packed::NOTHING, quota: 0 };

    /// Whether there are two quotas at once. Then the counter is elsewhere, and `packed` holds its index.
    pub(super) const fn is_of_two(&self) -> bool {
        self.quota == Self::OF_TWO
    }

    pub(super) const fn is_free(&self) -> bool {
        self.tag == Self::FREE.tag
    }
}

/// A state in 12 bytes. Its meaning depends on the algorithm; for a log it is the log's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
pub(super) struct Packed {
    pub(super) wide: u64,
    pub(super) narrow: u32,
}

impl Packed {
    pub(super) const NOTHING: Self = Self { wide: 0, narrow: 0 };
}

/// A state that fits into a slot.
pub(super) trait Pack: Sized {
    fn pack(self) -> Packed;
    /// `now` is needed where only the lower half of a window's number is kept.
    fn unpack(packed: Packed, quota: &Quota, now: Timestamp) -> Self;
}

impl Pack for token_bucket::State {
    #[inline]
    fn pack(self) -> Packed {
        let (wide, narrow) = self.0.marked();
        Packed { wide, narrow }
    }

    #[inline]
    fn unpack(packed: Packed, _: &Quota, _: Timestamp) -> Self {
        Self(FullAt::from_marked(packed.wide, packed.narrow))
    }
}

impl Pack for leaky_bucket::State {
    fn pack(self) -> Packed {
        let (wide, narrow) = self.0.marked();
        Packed { wide, narrow }
    }

    fn unpack(packed: Packed, _: &Quota, _: Timestamp) -> Self {
        Self(FullAt::from_marked(packed.wide, packed.narrow))
    }
}

impl Pack for fixed_window::State {
    fn pack(self) -> Packed {
        Packed { wide: self.start, narrow: self.count }
    }

    fn unpack(packed: Packed, _: &Quota, _: Timestamp) -> Self {
        Self { start: packed.wide, count: packed.narrow }
    }
}

impl Pack for sliding_window::State {
    fn pack(self) -> Packed {
        Packed { wide: u64::from(self.previous) << 32 | u64::from(self.current), narrow: self.index as u32 }
    }

    /// Of all windows whose number ends in the 32 bits that were kept, this takes the one nearest to now.
    /// That is the right one as long as it is less than half of the range away, which is 24 days even for
    /// windows of a millisecond. A key that nobody asks for is swept long before that, unless nobody asks for
    /// any key. Then the key may be denied until two windows are over.
    fn unpack(packed: Packed, quota: &Quota, now: Timestamp) -> Self {
        let now = sliding_window::index(quota.period_micros(), now);
        let ahead = packed.narrow.wrapping_sub(now as u32) as i32;
        Self {
            index: now.saturating_add_signed(i64::from(ahead)),
            previous: (packed.wide >> 32) as u32,
            current: packed.wide as u32,
        }
    }
}
