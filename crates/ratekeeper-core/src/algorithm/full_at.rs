//! The one point in time that represents a bucket, and whether it owes.

use crate::quota::Span;

/// Set in the microseconds of a budget that owes. No clock gets there.
const OWES: u64 = 1 << 63;

/// The point at which the budget is full; any time in the past means that it is.
///
/// A budget that owes may take more than a full refill to be full. Without the mark, that could not be told
/// apart from a clock that was set back, which must lock nobody out for longer than a full refill.
///
/// The mark is a bit of the number, so it takes no memory, and the point of a budget that owes is later than
/// any time it is compared with: code that forgets to check the mark finds no budget, and never too much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FullAt {
    marked: u64,
    parts: u32,
}

impl FullAt {
    #[inline]
    pub(crate) const fn new(at: Span, owes: bool) -> Self {
        // No clock comes near the largest number. If one did, the result would be meaningless, but nothing
        // breaks.
        let micros = at.micros & !OWES;
        Self { marked: if owes { micros | OWES } else { micros }, parts: at.parts }
    }

    /// The point, with the mark in it: far in the future if the budget owes.
    #[inline]
    pub(crate) const fn marked(self) -> (u64, u32) {
        (self.marked, self.parts)
    }

    /// From what [`marked`](Self::marked) returned.
    #[inline]
    pub(crate) const fn from_marked(marked: u64, parts: u32) -> Self {
        Self { marked, parts }
    }

    /// The point itself.
    pub(crate) const fn at(self) -> Span {
        Span { micros: self.marked & !OWES, parts: self.parts }
    }

    /// Whether more than the full budget was taken when it was last charged. It may have been paid off since.
    pub(crate) const fn owes(self) -> bool {
        self.marked & OWES != 0
    }
}
