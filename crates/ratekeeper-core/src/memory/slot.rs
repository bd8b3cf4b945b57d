//! What the table keeps for one key: 24 bytes.

use crate::algorithm::gcra::Bucket;
use crate::algorithm::window::{FixedWindow, SlidingWindow};
use crate::algorithm::{Ask, State};
use crate::{Algorithm, Outcome, Quota, Timestamp};

/// One key's count: the hash of rule and key, and its state. The key itself is not kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// The hash; the largest number if the slot is free.
    pub(super) tag: u64,
    pub(super) held: Held,
}

const _: () = assert!(size_of::<Slot>() == 24);

impl Slot {
    // Larger than any hash, so that a search for the first larger hash stops here as well.
    pub(super) const FREE: Self = Self { tag: u64::MAX, held: Held::new(Packed { wide: 0, narrow: 0 }, 0) };

    pub(super) const fn is_free(&self) -> bool {
        self.tag == Self::FREE.tag
    }
}

/// A state in 12 bytes, and the number of the quota that it was counted under in
/// [`Quotas`](super::quotas::Quotas).
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) packed: Packed,
    /// The number of the quota, and [`Self::DENIED`].
    number: u32,
}

impl Held {
    /// Set if the key was denied recently.
    const DENIED: u32 = 1 << 31;
    /// Stands in for the number of a quota if the key has two states.
    const PAIR: u32 = Self::DENIED - 1;

    pub(super) const fn new(packed: Packed, number: u32) -> Self {
        Self { packed, number }
    }

    /// Refers to two states that are elsewhere.
    pub(super) const fn pair(at: usize) -> Self {
        Self { packed: Packed::elsewhere(at), number: Self::PAIR }
    }

    /// Where the two states are, if there are two.
    pub(super) const fn as_pair(&self) -> Option<usize> {
        if self.number() == Self::PAIR { Some(self.packed.narrow as usize) } else { None }
    }

    #[inline]
    pub(super) const fn number(&self) -> u32 {
        self.number & !Self::DENIED
    }

    /// Takes a cost from the state of a bucket if it fits at once.
    #[inline(always)]
    pub(super) fn take(&mut self, quota: &Quota, ask: Ask, now: Timestamp) -> Option<Outcome> {
        let Packed { wide, narrow } = self.packed;
        let mut bucket = Bucket::from_marked(wide, narrow);
        let outcome = bucket.take(quota, ask, now)?;
        let (wide, narrow) = bucket.marked();
        self.packed = Packed { wide, narrow };
        self.set_denied(false);
        Some(outcome)
    }

    pub(super) const fn was_denied(&self) -> bool {
        self.number & Self::DENIED != 0
    }

    pub(super) const fn set_denied(&mut self, denied: bool) {
        self.number = if denied { self.number | Self::DENIED } else { self.number & !Self::DENIED };
    }
}

/// A state in 12 bytes. Its meaning depends on the algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, packed(4))]
pub(super) struct Packed {
    pub(super) wide: u64,
    pub(super) narrow: u32,
}

/// The width of a sliding window's count. The other 42 bits hold the window's number, even for windows of a
/// millisecond.
const COUNT: u32 = 27;
const MOST: u32 = (1 << COUNT) - 1;

impl Packed {
    /// Refers to a state that does not fit.
    pub(super) const fn elsewhere(at: usize) -> Self {
        Self { wide: u64::MAX, narrow: at as u32 }
    }

    /// The state, unless it is elsewhere.
    #[inline]
    pub(super) fn unpack(self, quota: &Quota) -> Option<State> {
        let Self { wide, narrow } = self;
        match quota.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                Some(State::Bucket(Bucket::from_marked(wide, narrow)))
            }
            Algorithm::FixedWindow => Some(State::FixedWindow(FixedWindow { start: wide, count: narrow })),
            Algorithm::SlidingWindow if wide != u64::MAX => {
                let bits = u128::from(wide) << 32 | u128::from(narrow);
                Some(State::SlidingWindow(SlidingWindow {
                    index: (bits >> (2 * COUNT)) as u64,
                    previous: (bits >> COUNT) as u32 & MOST,
                    current: bits as u32 & MOST,
                }))
            }
            Algorithm::SlidingWindow | Algorithm::SlidingLog => None,
        }
    }

    /// Packs a state if it fits: a log does not, nor does a sliding window with very large counts.
    #[inline]
    pub(super) fn pack(state: &State) -> Option<Self> {
        match *state {
            State::Bucket(bucket) => {
                let (wide, narrow) = bucket.marked();
                Some(Self { wide, narrow })
            }
            State::FixedWindow(FixedWindow { start, count }) => Some(Self { wide: start, narrow: count }),
            State::SlidingWindow(SlidingWindow { index, previous, current }) => {
                let bits =
                    u128::from(index) << (2 * COUNT) | u128::from(previous) << COUNT | u128::from(current);
                let fits = previous.max(current) <= MOST && index < (1 << (96 - 2 * COUNT)) - 1;
                fits.then_some(Self { wide: (bits >> 32) as u64, narrow: bits as u32 })
            }
            State::Log(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SECOND;

    #[test]
    fn a_sliding_window_is_packed_whole_or_not_at_all() {
        let quota = Quota::sliding_window(1, SECOND);
        for index in [0, 1, 1_763_270_000_123, (1 << 42) - 2] {
            for (previous, current) in [(0, 0), (1, 2), (MOST, 0), (0, MOST), (MOST, MOST)] {
                let window = State::SlidingWindow(SlidingWindow { index, previous, current });
                let packed = Packed::pack(&window).expect("it fits");
                assert_eq!(packed.unpack(&quota), Some(window));
            }
        }
        for (index, previous, current) in [((1 << 42) - 1, 0, 0), (1, MOST + 1, 0), (1, 0, MOST + 1)] {
            assert_eq!(Packed::pack(&State::SlidingWindow(SlidingWindow { index, previous, current })), None);
        }
    }
}
