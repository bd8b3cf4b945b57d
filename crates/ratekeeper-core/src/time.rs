//! A point on a store's timeline.

use std::fmt;
use std::time::Duration;

/// A point in time: whole microseconds since the Unix epoch, on the clock of the store that decided.
///
/// It counts microseconds because a Redis server's clock does, so that all stores agree on the instants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The Unix epoch.
    pub const UNIX_EPOCH: Self = Self(0);

    /// The point `micros` microseconds after the Unix epoch.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// The point `secs` seconds after the Unix epoch.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000))
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Seconds since the Unix epoch, rounded up.
    ///
    /// A reset time is announced this way: a caller that waits for the announced second never comes too
    /// early.
    #[inline]
    #[must_use]
    pub const fn as_secs_ceil(self) -> u64 {
        // Shorter than `div_ceil`, and equal except in the very last second.
        self.0.saturating_add(999_999) / 1_000_000
    }

    /// This point, `duration` later. Fractions of a microsecond round up; the result saturates.
    #[must_use]
    pub const fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(micros_ceil(duration)))
    }

    /// This point, `duration` earlier, and not before the Unix epoch.
    #[must_use]
    pub const fn saturating_sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(micros_ceil(duration)))
    }

    /// How long after `earlier` this is; zero if it is not after it.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// A duration in whole microseconds, rounded up, saturating.
pub(crate) const fn micros_ceil(duration: Duration) -> u64 {
    let nanos = duration.as_nanos().div_ceil(1_000);
    if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 }
}
