//! The five algorithms by name.

use std::fmt;

/// How requests are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// A bucket that refills steadily and holds at most a burst. The default.
    TokenBucket,
    /// A counter that restarts at each multiple of the period since the Unix epoch.
    FixedWindow,
    /// Two counters: the previous window's fades out as the current window advances.
    SlidingWindow,
    /// Every admission is remembered for one period: exact in every trailing window.
    SlidingLog,
    /// A queue that drains steadily: requests are held back until it is their turn.
    LeakyBucket,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Self; 5] =
        [Self::TokenBucket, Self::FixedWindow, Self::SlidingWindow, Self::SlidingLog, Self::LeakyBucket];

    /// The name used in a quota's text.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TokenBucket => "token-bucket",
            Self::FixedWindow => "fixed-window",
            Self::SlidingWindow => "sliding-window",
            Self::SlidingLog => "sliding-log",
            Self::LeakyBucket => "leaky-bucket",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
