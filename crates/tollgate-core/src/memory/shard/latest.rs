//! The latest time that a shard knows of.

use crate::Timestamp;

/// The lower half of the time at which something was last done to a shard.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Latest(u32);

/// A little more, in microseconds.
const A_SECOND: u32 = 1 << 20;

impl Latest {
    pub(super) const fn new(now: Timestamp) -> Self {
        Self(now.as_micros() as u32)
    }

    /// The time, which was read before the shard was locked: whoever waits for the lock need not wait for the clock as
    /// well. If somebody who read it later was quicker to the lock, it is read again, so that time does not run backwards
    /// on a key.
    ///
    /// It is read again as well after a second in which nothing was done: of times that are further apart, the lower halves do
    /// not tell which is the later one.
    #[inline(always)]
    pub(super) fn time(&mut self, known: Timestamp, read_again: impl FnOnce() -> Timestamp) -> Timestamp {
        let now = if self.may_be_after(known) { read_again() } else { known };
        *self = Self::new(now);
        now
    }

    /// Whether it may be later than this.
    #[inline(always)]
    pub(super) const fn may_be_after(self, time: Timestamp) -> bool {
        Self::new(time).0.wrapping_sub(self.0) > A_SECOND
    }
}
