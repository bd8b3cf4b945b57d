//! Keys, in the order in which requests bring them.
//!
//! They are made beforehand and lie in memory in that order, because the key of a request that a server has
//! just read is in the processor's cache, whatever happens to its counter.

/// The key of one caller.
#[must_use]
pub fn key(number: u64) -> String {
    format!("user:{number:08}")
}

/// The keys of the first `count` callers.
pub fn all(count: u64) -> impl Iterator<Item = String> {
    (0..count).map(key)
}

/// `len` requests of one caller.
#[must_use]
pub fn one(len: usize) -> Vec<String> {
    vec![key(12_345_678); len]
}

/// `len` requests, each from one of `count` callers, all equally likely.
#[must_use]
pub fn uniform(count: u64, len: usize, seed: u64) -> Vec<String> {
    let mut random = Random(seed);
    (0..len).map(|_| key((random.unit() * count as f64) as u64)).collect()
}

/// `len` requests, each from one of `count` callers, the n-th most frequent in proportion to 1/n (Zipf's
/// law).
///
/// How frequent a caller is has nothing to do with when it came first. Otherwise the keys of frequent callers
/// would lie side by side in a store that keeps keys.
#[must_use]
pub fn zipf(count: u64, len: usize, seed: u64) -> Vec<String> {
    let mut random = Random(seed);
    // The inverse of the distribution function of 1/x between 1 and `count`.
    let mut rank = || (random.unit() * (count as f64).ln()).exp() as u64 - 1;
    (0..len).map(|_| key(scattered(rank(), count))).collect()
}

/// A one-to-one mapping of the numbers below `count`, which must not be a multiple of [`SCATTER`].
const fn scattered(number: u64, count: u64) -> u64 {
    (number as u128 * SCATTER as u128 % count as u128) as u64
}

/// A prime.
const SCATTER: u64 = 2_654_435_761;

/// SplitMix64: the same numbers in every run.
struct Random(u64);

impl Random {
    /// A number from 0 up to, but not including, 1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        (z >> 11) as f64 / (1_u64 << 53) as f64
    }
}
