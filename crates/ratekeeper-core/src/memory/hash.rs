//! The hash that stands for rule and key.
//!
//! Callers choose the keys, so they must not be able to choose two that share a counter. That rules out the
//! fast hashes of hash tables, whose resistance is a matter of experience. It takes a universal hash, whose
//! resistance is a theorem: the chance that any two given keys collide, over the random choice of the
//! function, is bounded. Here the bound is 2⁻⁶², and nothing reveals the function to the outside.
//!
//! The words of a key go pairwise through NH (RFC 4418, section 5.2, with words of 64 bits): the sum of
//! (word + k) × (word + k′). Two different keys of one length have the same sum with a chance of 2⁻⁶⁴. The
//! resulting 128 bits go through a multilinear hash modulo 2¹²⁸, of which the upper half is taken. That is
//! strongly universal: chance 2⁻⁶⁴.
//!
//! A table needs more than that any two keys are apart: keys that count up would give hashes that count up,
//! and with some functions they would cluster. So the bits are mixed at the end, which is one to one and
//! keeps the bound.

use std::fmt;
use std::hash::{BuildHasher, RandomState};

use crate::key::{KeyRef, WORDS};

/// Pairs of words: the rule and the key's shape, then the key.
const PAIRS: usize = 1 + WORDS.div_ceil(2);

/// A randomly chosen function that maps a rule and a key to one number.
///
/// Without knowing the function, nobody can find two keys with the same number, so it is fit for tables that
/// callers fill. Another process has a different function.
///
/// ```
/// use ratekeeper_core::{Key, KeyHash, RuleName};
///
/// let (hash, rule) = (KeyHash::random(), RuleName::new("per-user")?);
/// let key = Key::from("user:1");
/// assert_eq!(hash.hash(rule.id(), &"user:1".into()), hash.hash(rule.id(), &(&key).into()));
/// # Ok::<(), ratekeeper_core::RuleNameError>(())
/// ```
pub struct KeyHash {
    pairs: [(u64, u64); PAIRS],
    low: u128,
    high: u128,
    plus: u128,
}

impl fmt::Debug for KeyHash {
    /// Leaves out the function, which must stay secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyHash").finish_non_exhaustive()
    }
}

impl KeyHash {
    /// A function that nobody else has.
    #[must_use]
    pub fn random() -> Self {
        // SipHash under keys from the system: the only source of randomness in the standard library.
        let random = || RandomState::new().hash_one(0);
        let wide = || u128::from(random()) << 64 | u128::from(random());
        Self { pairs: std::array::from_fn(|_| (random(), random())), low: wide(), high: wide(), plus: wide() }
    }

    /// The number of a key under a rule, which is given by its [id](crate::RuleName::id).
    #[inline(always)]
    #[must_use]
    pub fn hash(&self, rule: u64, key: &KeyRef<'_>) -> u64 {
        // The words beyond a key's length are zero and carry no information, because the length is part of
        // the shape. So short keys, which most are, stop after the first pair.
        let sum = match key.short() {
            Some((shape, [first, second])) => {
                nh(self.pairs[0], rule, shape).wrapping_add(nh(self.pairs[1], first, second))
            }
            // A copy, so that a short key need not be in memory.
            None => self.sum(rule, &{ *key }),
        };
        let low = self.low.wrapping_mul(u128::from(sum as u64));
        let high = self.high.wrapping_mul(sum >> 64);
        mix((low.wrapping_add(high).wrapping_add(self.plus) >> 64) as u64)
    }

    #[inline(never)]
    fn sum(&self, rule: u64, key: &KeyRef<'_>) -> u128 {
        let key = key.to_key();
        let pairs = self.pairs[1..].iter().zip(key.words().chunks(2));
        pairs.fold(nh(self.pairs[0], rule, key.shape()), |sum, (pair, words)| {
            let second = words.get(1).copied().unwrap_or(0);
            sum.wrapping_add(nh(*pair, words[0], second))
        })
    }
}

/// One to one, because both of its steps are.
#[inline]
const fn mix(hash: u64) -> u64 {
    (hash ^ hash >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

#[inline]
fn nh(keys: (u64, u64), a: u64, b: u64) -> u128 {
    u128::from(a.wrapping_add(keys.0)) * u128::from(b.wrapping_add(keys.1))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::IpAddr;

    use super::*;
    use crate::Key;

    #[test]
    fn keys_that_differ_a_little_hash_differently() {
        let hash = KeyHash::random();
        let mut seen = HashSet::new();
        let mut keys = vec![Key::GLOBAL, Key::AMBIGUOUS, Key::MISSING, Key::from(""), Key::secret("")];
        for i in 0..100_000_u64 {
            keys.push(Key::from(format!("user:{i:08}")));
            keys.push(Key::from(i));
            keys.push(Key::from(("user", i)));
        }
        for len in 1..=200 {
            keys.push(Key::from("\0".repeat(len)));
            keys.push(Key::from("a".repeat(len)));
            keys.push(Key::secret("a".repeat(len)));
        }
        // A long text is kept as its digest, secret or not.
        keys.dedup();
        let keys: HashSet<Key> = keys.into_iter().collect();
        for key in &keys {
            for rule in [0, 1, u64::MAX] {
                assert!(seen.insert(hash.hash(rule, &key.into())), "{rule} {key:?}");
            }
        }
    }

    #[test]
    fn a_text_hashes_like_the_key_made_from_it() {
        let hash = KeyHash::random();
        for len in 0..100 {
            let text = "abcdefghijklm".repeat(9)[..len].to_owned();
            let key = Key::from(&text);
            assert_eq!(hash.hash(1, &(&text).into()), hash.hash(1, &(&key).into()), "{len}");
        }
    }

    /// Whether keys that count up are spread evenly over the upper and the lower bits.
    fn spreads(hash: &KeyHash) -> bool {
        let (mut upper, mut lower) = ([0_i64; 64], [0_i64; 64]);
        for i in 0..64_000_u64 {
            let h = hash.hash(7, &(&Key::from(i)).into());
            upper[(h >> 58) as usize] += 1;
            lower[(h & 63) as usize] += 1;
        }
        // 1000 expected in each, with a standard deviation of 32.
        upper.iter().chain(&lower).all(|count| (count - 1_000).abs() < 250)
    }

    #[test]
    fn hashes_are_spread_evenly_over_the_upper_and_the_lower_bits() {
        // One function in a few hundred is less even than that, and does no harm.
        let spread = (0..16).filter(|_| spreads(&KeyHash::random())).count();
        assert!(spread >= 13, "{spread} of 16");
    }

    /// The average distance of slots from their homes, in a table that is two thirds full.
    fn displacement(hash: &KeyHash, keys: impl Iterator<Item = Key>) -> f64 {
        let mut hashes: Vec<u64> = keys.map(|key| hash.hash(7, &(&key).into())).collect();
        hashes.sort_unstable();
        let homes = hashes.len() as u128 * 3 / 2;
        let (mut next, mut sum) = (0, 0);
        for hash in &hashes {
            let home = (u128::from(*hash) * homes) >> 64;
            next = home.max(next);
            sum += next - home;
            next += 1;
        }
        sum as f64 / hashes.len() as f64
    }

    #[test]
    fn keys_that_count_up_do_not_heap_up_under_any_function() {
        for _ in 0..40 {
            let hash = KeyHash::random();
            let addresses = (0..20_000_u32).map(|i| Key::from(IpAddr::from((0x0a00_0000 + i).to_be_bytes())));
            let texts = (0..20_000).map(|i| Key::from(format!("{i:08}")));
            // Random hashes have a mean of one.
            let displaced = [displacement(&hash, addresses), displacement(&hash, texts)];
            assert!(displaced.iter().all(|mean| *mean < 2.0), "{displaced:?}");
        }
    }

    #[test]
    fn two_functions_have_nothing_in_common() {
        let (a, b) = (KeyHash::random(), KeyHash::random());
        let same = (0..1_000_u64).filter(|i| {
            let key = Key::from(*i);
            a.hash(1, &(&key).into()) == b.hash(1, &(&key).into())
        });
        assert_eq!(same.count(), 0);
    }
}
