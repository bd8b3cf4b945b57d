//! The latest time that a shard knows of.

use crate::{Clock, Timestamp};

/// The lower half of the time at which something was last done to a shard.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Latest(u32);

impl Latest {
    pub(super) const fn new(now: Timestamp) -> Self {
        Self(now.as_micros() as u32)
    }

    /// The time, which was read before the shard was locked: whoever waits for the lock need not wait for the clock as
    /// well. If somebody who read it later was quicker to the lock, it is read again, so that time does not run backwards
    /// on a key.
    ///
    /// Of times that are more than half an hour apart the later one may be taken for the earlier. Then the clock is read for
    /// nothing, or the clock was set back, which it says again when it is read again.
    #[inline(always)]
    pub(super) fn time<C: Clock>(&mut self, known: Timestamp, clock: &C) -> Timestamp {
        let now = if self.is_after(known) { read_again(clock) } else { known };
        *self = Self::new(now);
        now
    }

    /// Whether it is later than this.
    #[inline(always)]
    pub(super) const fn is_after(self, time: Timestamp) -> bool {
        (Self::new(time).0.wrapping_sub(self.0) as i32) < 0
    }
}

#[cold]
#[inline(never)]
fn read_again<C: Clock>(clock: &C) -> Timestamp {
    clock.now()
}
