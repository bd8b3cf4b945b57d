//! The latest time at which a shard was used.

use crate::Timestamp;

/// The lower half of the time at which a shard was last used, in microseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Latest(u32);

/// A little more than a second, in microseconds.
const A_SECOND: u32 = 1 << 20;

impl Latest {
    pub(super) const fn new(now: Timestamp) -> Self {
        Self(now.as_micros() as u32)
    }

    /// The time, given what the clock read before the shard was locked.
    ///
    /// The clock is read before locking so that a thread that waits for the lock need not wait for the clock
    /// as well. If a thread that read it later was quicker to take the lock, the clock is read again, so that
    /// time does not run backwards for a key.
    ///
    /// The clock is also read again if the shard was not used for a second: for times that are further apart,
    /// the lower halves do not tell which is later.
    #[inline(always)]
    pub(super) fn time(&mut self, known: Timestamp, read_again: impl FnOnce() -> Timestamp) -> Timestamp {
        let now = if self.may_be_after(known) { read_again() } else { known };
        *self = Self::new(now);
        now
    }

    /// Whether the shard may have been used later than at this time.
    #[inline(always)]
    pub(super) const fn may_be_after(self, time: Timestamp) -> bool {
        Self::new(time).0.wrapping_sub(self.0) > A_SECOND
    }
}
