//! What the table keeps for one key: 24 bytes.

use crate::algorithm::gcra::Bucket;
use crate::algorithm::window::{FixedWindow, SlidingWindow};

/// One key's count: the hash of rule and key, the state in 12 bytes, and the number of the quota that it was
/// counted under. The key itself is not kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// The hash; the largest number if the slot is free.
    pub(super) tag: u64,
    pub(super) packed: Packed,
    /// The number of the quota in the shard's [`Quotas`](super::quotas::Quotas), and [`Self::DENIED`].
    quota: u32,
}

const _: () = assert!(size_of::<Slot>() == 24);

impl Slot {
    /// Set in the number of the quota if the key was denied recently.
    const DENIED: u32 = 1 << 31;
    /// Stands in for the number of a quota if the counter does not fit into a slot. With [`Self::DENIED`] it
    /// is not `u32::MAX`, which stands for no quota elsewhere.
    const SPILLED: u32 = Self::DENIED - 2;

    // Larger than any hash, so that a search for the first larger hash stops here as well.
    pub(super) const FREE: Self = Self { tag: u64::MAX, packed: Packed { wide: 0, narrow: 0 }, quota: 0 };

    #[inline]
    pub(super) const fn new(tag: u64, packed: Packed, quota: u32) -> Self {
        Self { tag, packed, quota }
    }

    /// A slot for a counter that is elsewhere.
    pub(super) const fn spilled(tag: u64, at: u32) -> Self {
        Self { tag, packed: Packed { wide: 0, narrow: at }, quota: Self::SPILLED }
    }

    /// Whether the counter is elsewhere: it has a previous state, or counts more than a slot can hold. Then
    /// `packed` holds its index.
    pub(super) const fn is_spilled(&self) -> bool {
        self.quota() == Self::SPILLED
    }

    pub(super) const fn is_free(&self) -> bool {
        self.tag == Self::FREE.tag
    }

    #[inline]
    pub(super) const fn quota(&self) -> u32 {
        self.quota & !Self::DENIED
    }

    /// The number of the quota, if the key was not denied recently; otherwise a number that no quota has.
    #[inline]
    pub(super) const fn quota_unless_denied(&self) -> u32 {
        self.quota
    }

    pub(super) const fn was_denied(&self) -> bool {
        self.quota & Self::DENIED != 0
    }

    pub(super) const fn set_denied(&mut self, denied: bool) {
        self.quota = if denied { self.quota | Self::DENIED } else { self.quota & !Self::DENIED };
    }
}

/// A state in 12 bytes. Its meaning depends on the algorithm; for a log it is the log's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
pub(super) struct Packed {
    pub(super) wide: u64,
    pub(super) narrow: u32,
}

/// A state that fits into a slot.
pub(super) trait Pack: Sized {
    /// `None` if this one does not fit.
    fn pack(self) -> Option<Packed>;
    fn unpack(packed: Packed) -> Self;
}

impl Pack for Bucket {
    #[inline]
    fn pack(self) -> Option<Packed> {
        let (wide, narrow) = self.marked();
        Some(Packed { wide, narrow })
    }

    #[inline]
    fn unpack(packed: Packed) -> Self {
        Self::from_marked(packed.wide, packed.narrow)
    }
}

impl Pack for FixedWindow {
    fn pack(self) -> Option<Packed> {
        Some(Packed { wide: self.start, narrow: self.count })
    }

    fn unpack(packed: Packed) -> Self {
        Self { start: packed.wide, count: packed.narrow }
    }
}

/// The width of a sliding window's count. The other 42 bits hold the window's number, even for windows of a
/// millisecond.
const COUNT: u32 = 27;
const MOST: u32 = (1 << COUNT) - 1;

impl Pack for SlidingWindow {
    fn pack(self) -> Option<Packed> {
        if self.previous.max(self.current) > MOST || self.index >> (96 - 2 * COUNT) > 0 {
            return None;
        }
        let counts = u128::from(self.previous) << COUNT | u128::from(self.current);
        let bits = u128::from(self.index) << (2 * COUNT) | counts;
        Some(Packed { wide: (bits >> 32) as u64, narrow: bits as u32 })
    }

    fn unpack(packed: Packed) -> Self {
        let bits = u128::from(packed.wide) << 32 | u128::from(packed.narrow);
        Self {
            index: (bits >> (2 * COUNT)) as u64,
            previous: (bits >> COUNT) as u32 & MOST,
            current: bits as u32 & MOST,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sliding_window_is_packed_whole_or_not_at_all() {
        for index in [0, 1, 1_763_270_000_123, (1 << 42) - 1] {
            for (previous, current) in [(0, 0), (1, 2), (MOST, 0), (0, MOST), (MOST, MOST)] {
                let window = SlidingWindow { index, previous, current };
                assert_eq!(window.pack().map(SlidingWindow::unpack), Some(window));
            }
        }
        for (index, previous, current) in [(1 << 42, 0, 0), (1, MOST + 1, 0), (1, 0, MOST + 1)] {
            assert_eq!(SlidingWindow { index, previous, current }.pack(), None);
        }
    }
}
