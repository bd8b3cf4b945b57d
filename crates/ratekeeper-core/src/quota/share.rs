//! A part of a quota: what one of several nodes may admit on its own.

use std::error::Error;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use super::{MAX_FILL, Quota, gcd};
use crate::{Key, RuleName};

/// A fraction above zero and at most one.
///
/// ```
/// use ratekeeper_core::{Quota, Share};
///
/// const SHARE: Share = Share::one_of(4);
/// assert_eq!(Quota::per_minute(100).share(SHARE), Quota::per_minute(25));
/// assert_eq!("1/4".parse(), Ok(SHARE));
/// assert_eq!("25%".parse(), Ok(SHARE));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Share {
    // In lowest terms, so that equal shares are equal.
    parts: NonZeroU32,
    of: NonZeroU32,
}

impl Share {
    /// The whole.
    pub const WHOLE: Self = Self { parts: NonZeroU32::MIN, of: NonZeroU32::MIN };

    /// The share of one of `nodes` equal nodes.
    ///
    /// # Panics
    ///
    /// If `nodes` is zero; in a `const`, that is a compile error. For a number that is not known at compile
    /// time, use [`Share::new`].
    #[must_use]
    pub const fn one_of(nodes: u32) -> Self {
        match Self::new(1, nodes) {
            Ok(share) => share,
            Err(_) => panic!("a share of one of no nodes"),
        }
    }

    /// `parts` parts of a whole that has `of` parts.
    ///
    /// # Errors
    ///
    /// If that is nothing, or more than the whole.
    pub const fn new(parts: u32, of: u32) -> Result<Self, ShareError> {
        if parts > of {
            return Err(ShareError::AboveWhole);
        }
        let shared = gcd(parts as u64, of as u64) as u32;
        match (NonZeroU32::new(parts / shared), NonZeroU32::new(of / shared)) {
            (Some(parts), Some(of)) => Ok(Self { parts, of }),
            _ => Err(ShareError::Nothing),
        }
    }

    /// Whether a key is in this share of all keys.
    ///
    /// The hash is the same in every process and never changes, so all nodes agree about a key. A key that is
    /// in a share is in every larger one. The shares of different rules contain different keys, lest the same
    /// callers be among the first in every trial.
    ///
    /// ```
    /// use ratekeeper_core::{Key, RuleName, Share};
    ///
    /// let rule = RuleName::new("per-user")?;
    /// let keys: Vec<_> = (0..1_000).map(|id: u64| Key::from(id)).collect();
    /// let count = |share: Share| keys.iter().filter(|key| share.includes(rule, key)).count();
    /// assert!((50..150).contains(&count(Share::one_of(10))));
    /// assert_eq!(count(Share::WHOLE), 1_000);
    /// # Ok::<(), ratekeeper_core::RuleNameError>(())
    /// ```
    #[must_use]
    pub fn includes(self, rule: RuleName, key: &Key) -> bool {
        let mut hash = Sha256::new();
        hash.update(key.shape().to_le_bytes());
        for word in key.words() {
            hash.update(word.to_le_bytes());
        }
        hash.update(rule.as_str());
        let place = hash.finalize().iter().take(8).fold(0, |place, byte| place << 8 | u64::from(*byte));
        // Compares with the same share of all 64-bit numbers.
        u128::from(place) * u128::from(self.of.get()) < u128::from(self.parts.get()) << 64
    }

    /// This share of a number, rounded down, but at least one.
    const fn apply(self, n: u32) -> u32 {
        let share = (n as u64 * self.parts.get() as u64 / self.of.get() as u64) as u32;
        if share == 0 { 1 } else { share }
    }
}

impl Quota {
    /// The share of this quota that one node may admit on its own.
    ///
    /// It has the same algorithm and period. Limit and burst (or capacity) are the share of the quota's,
    /// rounded down, but at least one.
    ///
    /// So the shares of all nodes together are never above the quota, as long as its limit and its burst are
    /// not below the number of nodes. Below that, each node has one: of three a minute, four nodes admit
    /// four.
    ///
    /// An [invalid](Self::check) quota is returned unchanged, and a share of a valid quota is valid.
    ///
    /// ```
    /// use ratekeeper_core::{Quota, Share};
    ///
    /// let quota: Quota = "10/s burst 20".parse()?;
    /// assert_eq!(quota.share(Share::one_of(4)).to_string(), "2/s burst 5");
    /// # Ok::<(), ratekeeper_core::quota::ParseQuotaError>(())
    /// ```
    #[must_use]
    pub const fn share(self, share: Share) -> Self {
        if self.fault.is_some() {
            return self;
        }
        let (limit, capacity) = (share.apply(self.limit), share.apply(self.capacity));
        // The rate was rounded down and may now be too slow for its burst. Periods are bounded, so what
        // remains of the burst is more than one.
        let most = MAX_FILL as u128 * limit as u128 / self.period.get() as u128;
        let capacity = if capacity as u128 > most { most as u32 } else { capacity };
        Self::derive(self.algorithm, limit, self.period(), capacity, None, self.spelling)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.parts, self.of)
    }
}

impl FromStr for Share {
    type Err = ShareError;

    /// Parses a text such as `1/4` or `25%`. Spaces around the numbers have no meaning.
    fn from_str(text: &str) -> Result<Self, ShareError> {
        let number = |text: &str| {
            let digits = text.trim_matches(' ');
            // `parse` accepts a sign.
            let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|_| is_number).ok_or(ShareError::NoFraction)
        };
        if let Some(percent) = text.trim_end_matches(' ').strip_suffix('%') {
            return Self::new(number(percent)?, 100);
        }
        let (parts, of) = text.split_once('/').ok_or(ShareError::NoFraction)?;
        Self::new(number(parts)?, number(of)?)
    }
}

/// Why something is not a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ShareError {
    /// It is nothing, or a part of nothing.
    Nothing,
    /// It is more than the whole.
    AboveWhole,
    /// The text is not a fraction.
    NoFraction,
}

impl fmt::Display for ShareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => "a share of nothing admits nothing; the least is one part",
            Self::AboveWhole => "a share cannot be more than the whole",
            Self::NoFraction => {
                "a share is a fraction of two whole numbers, such as 1/4, or whole percents, such as 25%"
            }
        })
    }
}

impl Error for ShareError {}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::quota::{Algorithm, DAY, MAX_PERIOD, MINUTE, QuotaError};

    fn quota(algorithm: Algorithm, limit: u32, capacity: u32) -> Quota {
        match algorithm {
            Algorithm::TokenBucket => Quota::token_bucket(limit, MINUTE).burst(capacity),
            Algorithm::LeakyBucket => Quota::leaky_bucket(limit, MINUTE).capacity(capacity),
            Algorithm::FixedWindow => Quota::fixed_window(limit, MINUTE),
            Algorithm::SlidingWindow => Quota::sliding_window(limit, MINUTE),
            Algorithm::SlidingLog => Quota::sliding_log(limit, MINUTE),
        }
    }

    #[test]
    fn all_nodes_together_are_never_above_the_whole() {
        for algorithm in Algorithm::ALL {
            for nodes in 1..=64 {
                let share = Share::one_of(nodes);
                for n in [nodes, nodes + 1, 2 * nodes - 1, 100.max(nodes), 4_321, u32::MAX] {
                    let whole = quota(algorithm, n, n.saturating_mul(2));
                    let own = whole.share(share);
                    assert_eq!(own.check(), Ok(()), "{own:?}");
                    assert_eq!((own.algorithm(), own.period()), (algorithm, MINUTE));
                    assert!(u64::from(own.limit()) * u64::from(nodes) <= u64::from(whole.limit()), "{own:?}");
                    assert!(u64::from(own.max()) * u64::from(nodes) <= u64::from(whole.max()), "{own:?}");
                    // And no less than rounding requires.
                    assert!(own.limit() == whole.limit() / nodes && own.max() == whole.max() / nodes);
                }
            }
        }
    }

    #[test]
    fn shares_that_differ_add_up_as_well() {
        let whole = Quota::per_second(100).burst(7);
        for (a, b, c) in [(1, 2, 4), (3, 3, 1), (5, 1, 1)] {
            let own = [a, b, c].map(|parts| whole.share(Share::new(parts, a + b + c).unwrap()));
            assert!(own.iter().map(Quota::limit).sum::<u32>() <= 100);
            assert!(own.iter().map(Quota::max).sum::<u32>() <= 7);
        }
    }

    #[test]
    fn the_whole_is_what_it_was() {
        for algorithm in Algorithm::ALL {
            let whole = quota(algorithm, 7, 11);
            let same = whole.share(Share::WHOLE);
            assert_eq!((same, same.to_string()), (whole, whole.to_string()));
        }
    }

    #[test]
    fn where_there_are_more_nodes_than_limit_each_has_one() {
        let own = Quota::per_minute(3).burst(2).share(Share::one_of(4));
        assert_eq!((own.limit(), own.max()), (1, 1));
    }

    #[test]
    fn a_share_is_written_as_its_quota_was() {
        for (text, own) in [
            ("100/minute", "25/minute"),
            ("10/s burst 20", "2/s burst 5"),
            ("5 per 30s sliding-log", "1 per 30s sliding-log"),
            ("8/second leaky-bucket capacity 9", "2/second leaky-bucket capacity 2"),
            ("3/day", "1/day"),
        ] {
            let own_quota = text.parse::<Quota>().unwrap().share(Share::one_of(4));
            assert_eq!(own_quota.to_string(), own);
            assert_eq!(own.parse(), Ok(own_quota));
        }
    }

    #[test]
    fn a_share_of_what_makes_sense_makes_sense() {
        // Three in ten years, with a burst that takes 142 years to come back. Rounded down to one in ten
        // years, it would take longer.
        let slow = Quota::token_bucket(3, MAX_PERIOD).burst(42);
        assert_eq!(slow.check(), Ok(()));
        let own = slow.share(Share::new(63, 100).unwrap());
        assert_eq!((own.check(), own.limit(), own.max()), (Ok(()), 1, 14));
        let nonsense = Quota::per_second(0);
        assert_eq!(nonsense.share(Share::WHOLE).check(), Err(QuotaError::ZeroLimit));
    }

    #[test]
    fn a_share_is_above_zero_and_at_most_one() {
        assert_eq!(Share::new(0, 4), Err(ShareError::Nothing));
        assert_eq!(Share::new(0, 0), Err(ShareError::Nothing));
        assert_eq!(Share::new(5, 4), Err(ShareError::AboveWhole));
        assert_eq!(Share::new(1, 0), Err(ShareError::AboveWhole));
        assert_eq!(Share::new(4, 4), Ok(Share::WHOLE));
        assert_eq!(Share::new(2, 8), Ok(Share::one_of(4)));
        assert_eq!(Share::new(u32::MAX, u32::MAX), Ok(Share::WHOLE));
        assert_eq!(Share::one_of(u32::MAX).to_string(), "1/4294967295");
    }

    #[test]
    #[should_panic(expected = "no nodes")]
    fn one_of_no_nodes_is_nobody() {
        let _ = Share::one_of(0);
    }

    #[test]
    fn text_prints_back() {
        assert_eq!(" 2 / 8 ".parse(), Ok(Share::one_of(4)));
        assert_eq!(Share::one_of(4).to_string().parse(), Ok(Share::one_of(4)));
        for text in [
            "",
            "4",
            "1/",
            "/4",
            "a/4",
            "-1/4",
            "0.25",
            "1/4/2",
            "1/4294967296",
            "+1/4",
            "1\u{a0}/4",
            "25\t%",
        ] {
            assert_eq!(text.parse::<Share>(), Err(ShareError::NoFraction), "{text:?}");
        }
        assert_eq!("0/4".parse::<Share>(), Err(ShareError::Nothing));
    }

    #[test]
    fn a_share_of_a_quota_can_be_made_in_a_const() {
        const OWN: Quota = Quota::fixed_window(1_000, DAY).share(Share::one_of(3));
        assert_eq!((OWN.limit(), OWN.period()), (333, Duration::from_secs(86_400)));
    }
}
