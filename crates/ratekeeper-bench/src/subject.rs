//! What is measured: something that counts by key.

use std::hash::Hash;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};

use governor::DefaultKeyedRateLimiter;
use ratekeeper_core::{Charge, Clock, KeyHash, KeyRef, MemoryStore, Quota, RuleName, SystemClock};

/// A limiter that decides about one key at a time.
pub trait Subject<K>: Sync {
    /// Whether a request is admitted.
    fn admits(&self, key: &K) -> bool;
}

/// Our store, with one rule.
#[derive(Debug)]
pub struct Ours {
    /// Where it counts.
    pub store: MemoryStore,
    /// The rule that counts.
    pub rule: RuleName,
    /// What the rule allows.
    pub quota: Quota,
}

impl Ours {
    /// A store for `max_keys` keys.
    #[must_use]
    pub fn new(max_keys: usize, quota: Quota) -> Self {
        Self { store: MemoryStore::builder().max_keys(max_keys).build(), rule: rule("bench"), quota }
    }
}

impl<K> Subject<K> for Ours
where
    for<'a> &'a K: Into<KeyRef<'a>>,
{
    #[inline]
    fn admits(&self, key: &K) -> bool {
        self.store.decide_one(&Charge::new(self.rule, key, &self.quota)).1.is_admitted()
    }
}

/// governor's keyed limiter, on its default clock.
#[derive(Debug)]
pub struct Governor<K: Clone + Eq + Hash>(DefaultKeyedRateLimiter<K>);

impl<K: Clone + Eq + Hash> Governor<K> {
    /// `limit` per hour, and up to `burst` at once.
    ///
    /// # Panics
    ///
    /// If one of them is zero.
    #[must_use]
    pub fn per_hour(limit: u32, burst: u32) -> Self {
        let number = |n| NonZeroU32::new(n).expect("a quota above zero");
        let quota = governor::Quota::per_hour(number(limit)).allow_burst(number(burst));
        Self(DefaultKeyedRateLimiter::keyed(quota))
    }
}

impl<K: Clone + Eq + Hash + Sync + Send> Subject<K> for Governor<K> {
    #[inline]
    fn admits(&self, key: &K) -> bool {
        self.0.check_key(key).is_ok()
    }
}

/// The least that a store of many keys could do: hash the key, read the clock, and change a number in one
/// line of memory. It has no lock, and decides nothing; keys of the same line share their number.
#[derive(Debug)]
pub struct Floor {
    hash: KeyHash,
    clock: SystemClock,
    rule: RuleName,
    lines: Box<[Line]>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Line(AtomicU64);

impl Floor {
    /// With as much memory as [`Ours`] takes for this many keys.
    #[must_use]
    pub fn new(keys: usize) -> Self {
        // 64 bytes for every nine fifths of a key are 36 for each.
        let lines = (0..keys * 5 / 9 + 1).map(|_| Line::default()).collect();
        Self { hash: KeyHash::random(), clock: SystemClock::new(), rule: rule("floor"), lines }
    }
}

impl<K> Subject<K> for Floor
where
    for<'a> &'a K: Into<KeyRef<'a>>,
{
    #[inline]
    fn admits(&self, key: &K) -> bool {
        let hash = self.hash.hash(self.rule.id(), &key.into());
        let line = &self.lines[((u128::from(hash) * self.lines.len() as u128) >> 64) as usize].0;
        let now = self.clock.now().as_micros();
        line.store(line.load(Ordering::Relaxed).max(now) + 1, Ordering::Relaxed);
        true
    }
}

/// A rule's name.
///
/// # Panics
///
/// If the name is not allowed.
#[must_use]
pub fn rule(name: &str) -> RuleName {
    RuleName::new(name).expect("an allowed name")
}
