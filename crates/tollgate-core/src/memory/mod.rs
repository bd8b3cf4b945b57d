//! The store that lives in the process.

mod hash;
mod lock;
mod quotas;
mod shard;
mod slot;
mod table;
mod turn;

use std::fmt;
use std::future::{Future, Ready, ready};
use std::sync::Arc;

use smallvec::SmallVec;

use self::hash::KeyHash;
use self::lock::{Guard, Lock};
use self::shard::Shard;
use self::slot::Packed;
use self::turn::Turns;
use crate::{
    Answer, Charge, Clock, Decision, KeyRef, Outcome, Refund, RuleName, Store, StoreError, SystemClock,
    Timestamp,
};

const DEFAULT_MAX_KEYS: usize = 1_000_000;
/// How many keys a shard is made for.
const KEYS_PER_SHARD: usize = 1 << 10;
const MAX_SHARDS: usize = 1 << 8;
/// In what time every shard is swept once, in microseconds.
const SWEEP_ALL_EVERY: u64 = 30_000_000;

/// A store in the memory of this process.
///
/// - **Bounded.** It holds at most [`max_keys`](MemoryStoreBuilder::max_keys) keys, of at most 40
///   bytes each (the sliding log has 12 more for each admission that it remembers). When it is full,
///   a new key takes the place of the one that matters least among some neighbours: one that has
///   expired, else one that has used least of its budget.
/// - **No thread.** Keys whose budget is whole again are dropped in passing, by the calls that come.
/// - **No keys.** It holds a 64-bit hash of rule and key, and not the key. The hash is keyed with
///   random numbers of this store, and universal: whatever two keys a caller thinks of, the chance that
///   they share a counter is below 2⁻⁶², and there is nothing to learn from the outside that would
///   improve it.
/// - **Exact.** Charges on any number of rules are decided together, under locks on the shards that
///   hold them.
///
/// Clones are the same store.
///
/// ```
/// use tollgate_core::{Charge, Key, MemoryStore, Quota, RuleName};
///
/// let store = MemoryStore::new();
/// let rule = RuleName::new("per-user")?;
/// let (quota, key) = (Quota::per_minute(2), Key::from("alice"));
/// let charge = [Charge::new(rule, &key, &quota)];
/// assert!(store.decide(&charge).is_admitted());
/// assert!(store.decide(&charge).is_admitted());
/// assert!(!store.decide(&charge).is_admitted());
/// # Ok::<(), tollgate_core::RuleNameError>(())
/// ```
pub struct MemoryStore<C = SystemClock> {
    inner: Arc<Inner<C>>,
}

struct Inner<C> {
    clock: C,
    hash: KeyHash,
    /// A power of two of them.
    shards: Box<[Aligned]>,
    max_keys: usize,
    sweeps: Turns,
}

/// A shard in a cache line of its own.
#[repr(align(64))]
struct Aligned(Lock<Shard>);

const _: () = assert!(size_of::<Aligned>() == 64);

/// Makes a [`MemoryStore`].
#[derive(Clone, Debug)]
#[must_use]
pub struct MemoryStoreBuilder<C = SystemClock> {
    max_keys: usize,
    clock: ClockSource<C>,
}

// The system's clock takes a while to start, so it is not started only to be replaced.
#[derive(Clone, Debug)]
enum ClockSource<C> {
    New(fn() -> C),
    Given(C),
}

impl<C> MemoryStoreBuilder<C> {
    /// How many keys the store holds at most; a million unless it is said. Zero is taken for one.
    pub fn max_keys(self, max_keys: usize) -> Self {
        Self { max_keys, ..self }
    }

    /// Where the store takes the time from.
    pub fn clock<D: Clock>(self, clock: D) -> MemoryStoreBuilder<D> {
        MemoryStoreBuilder { max_keys: self.max_keys, clock: ClockSource::Given(clock) }
    }
}

impl<C: Clock> MemoryStoreBuilder<C> {
    /// Makes the store. What it holds is allocated as keys come.
    #[must_use]
    pub fn build(self) -> MemoryStore<C> {
        let max_keys = self.max_keys.max(1);
        let wanted = max_keys.div_ceil(KEYS_PER_SHARD).next_power_of_two().min(MAX_SHARDS);
        // A power of two that is not above the number of keys, so that each shard holds at least one.
        let shards = if wanted > max_keys { wanted / 2 } else { wanted }.max(1);
        let shard = |_| Aligned(Lock::new(Shard::new(max_keys / shards)));
        MemoryStore {
            inner: Arc::new(Inner {
                clock: match self.clock {
                    ClockSource::New(new) => new(),
                    ClockSource::Given(clock) => clock,
                },
                hash: KeyHash::random(),
                shards: (0..shards).map(shard).collect(),
                max_keys,
                sweeps: Turns::new(SWEEP_ALL_EVERY / shards as u64),
            }),
        }
    }
}

impl MemoryStore {
    /// A store for up to a million keys, on the system's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Starts making a store.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder { max_keys: DEFAULT_MAX_KEYS, clock: ClockSource::New(SystemClock::new) }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Clock> MemoryStore<C> {
    /// Charges all or none. This is [`Store::charge`], which never fails here nor takes a while.
    #[inline]
    pub fn decide(&self, charges: &[Charge<'_>]) -> Decision {
        let [charge] = charges else {
            return self.decide_all(charges);
        };
        let (now, outcome) = self.decide_one(charge);
        let mut decision = Decision::new(now);
        decision.push(charge.rule, outcome);
        decision
    }

    /// Makes one charge, and says when.
    #[inline(always)]
    pub fn decide_one(&self, charge: &Charge<'_>) -> (Timestamp, Outcome) {
        let tag = self.tag(charge.rule, &charge.key);
        let mut shard = self.shard(tag);
        // In this order: under the lock, so that time does not run backwards on a key, and after the
        // slot was asked for, so that it is on its way from memory while the clock is read.
        let at = shard.seek(tag);
        let now = self.inner.clock.now();
        if let Some(outcome) = shard.charge_quickly(at, tag, charge, now) {
            drop(shard);
            self.sweep_if_due(now);
            return (now, outcome);
        }
        let outcome = shard.charge(at, tag, charge, now);
        drop(shard);
        self.sweep_if_due(now);
        (now, outcome)
    }

    fn decide_all(&self, charges: &[Charge<'_>]) -> Decision {
        let mut locked = Locked::new(self, charges);
        let now = self.inner.clock.now();
        let decision = locked.charge_known(charges, now).unwrap_or_else(|| {
            // Look first: what was charged could be given back, but not what it took the place of.
            if locked.admit(charges, now) {
                return locked.charge(charges, now);
            }
            let decision = locked.peek(charges, now);
            locked.settle(charges, now);
            decision
        });
        drop(locked);
        self.sweep_if_due(now);
        decision
    }

    /// What [`decide`](Self::decide) would say, changing nothing.
    #[must_use]
    pub fn look(&self, charges: &[Charge<'_>]) -> Decision {
        let locked = Locked::new(self, charges);
        locked.peek(charges, self.inner.clock.now())
    }

    /// How many keys the store holds, those included that have expired and are yet to be dropped.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.shards.iter().map(|shard| shard.0.lock().len()).sum()
    }

    /// Whether the store holds no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many keys the store holds at most.
    #[must_use]
    pub fn max_keys(&self) -> usize {
        self.inner.max_keys
    }

    /// How many keys had to make room for others before they expired.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.inner.shards.iter().map(|shard| shard.0.lock().evicted()).sum()
    }

    #[inline]
    fn tag(&self, rule: RuleName, key: &KeyRef<'_>) -> u64 {
        // The largest number is what a free slot has.
        self.inner.hash.hash(rule.id(), key).min(u64::MAX - 1)
    }

    #[inline]
    fn index(&self, tag: u64) -> usize {
        // The lower bits: the upper ones place the hash within the shard.
        tag as usize & (self.inner.shards.len() - 1)
    }

    #[inline]
    fn shard(&self, tag: u64) -> Guard<'_, Shard> {
        self.inner.shards[self.index(tag)].0.lock()
    }

    #[inline]
    fn sweep_if_due(&self, now: Timestamp) {
        if let Some(turn) = self.inner.sweeps.take(now) {
            self.sweep(turn, now);
        }
    }

    /// Sweeps a shard, unless it is busy; it has its turn again.
    #[cold]
    fn sweep(&self, turn: usize, now: Timestamp) {
        if let Some(mut shard) = self.inner.shards[turn % self.inner.shards.len()].0.try_lock() {
            shard.sweep(now);
        }
    }
}

/// The shards that one request needs, locked in the order of their numbers, so that two requests
/// never wait for each other.
struct Locked<'a> {
    shards: SmallVec<[Guard<'a, Shard>; 4]>,
    /// For each charge its hash, and where its shard is in `shards`.
    tags: SmallVec<[(u64, usize); 4]>,
}

impl<'a> Locked<'a> {
    fn new<C: Clock>(store: &'a MemoryStore<C>, charges: &[Charge<'_>]) -> Self {
        let mut tags = SmallVec::new();
        let mut order: SmallVec<[(usize, usize); 4]> = SmallVec::new();
        for (i, charge) in charges.iter().enumerate() {
            let tag = store.tag(charge.rule, &charge.key);
            tags.push((tag, 0));
            order.push((store.index(tag), i));
        }
        order.sort_unstable();
        let mut locked = Self { shards: SmallVec::new(), tags };
        let mut last = None;
        for (number, i) in order {
            if last != Some(number) {
                locked.shards.push(store.inner.shards[number].0.lock());
                last = Some(number);
            }
            locked.tags[i].1 = locked.shards.len() - 1;
        }
        locked
    }

    /// The charges with what each of them has to have room for: what this request charges the same key
    /// before counts as well.
    fn costs<'c>(
        &self,
        charges: &'c [Charge<'c>],
    ) -> impl Iterator<Item = (u64, &Shard, &'c Charge<'c>, u32)> {
        charges.iter().zip(&self.tags).enumerate().map(move |(i, (charge, (tag, at)))| {
            let earlier = self.tags[..i].iter().zip(charges).filter(|((earlier, _), _)| earlier == tag);
            let cost = earlier.fold(charge.cost, |sum, (_, earlier)| sum.saturating_add(earlier.cost));
            (*tag, &*self.shards[*at], charge, cost)
        })
    }

    /// Charges keys that are known, each once, if all charges fit; else nothing.
    fn charge_known(&mut self, charges: &[Charge<'_>], now: Timestamp) -> Option<Decision> {
        // All are asked for before the first is looked at, so that they come from memory together.
        let found: SmallVec<[usize; 4]> =
            self.tags.iter().map(|(tag, shard)| self.shards[*shard].seek(*tag)).collect();
        let mut decision = Decision::new(now);
        let mut tried: SmallVec<[(usize, usize, Packed); 4]> = SmallVec::new();
        for (i, (charge, &(tag, shard))) in charges.iter().zip(&self.tags).enumerate() {
            if self.tags[..i].iter().any(|(earlier, _)| *earlier == tag) {
                return None;
            }
            let (packed, outcome) = self.shards[shard].try_charge(found[i], tag, charge, now)?;
            tried.push((shard, found[i], packed));
            decision.push(charge.rule, outcome);
        }
        for (shard, at, packed) in tried {
            self.shards[shard].commit(at, packed);
        }
        Some(decision)
    }

    #[cold]
    fn admit(&self, charges: &[Charge<'_>], now: Timestamp) -> bool {
        self.costs(charges).all(|(tag, shard, charge, cost)| shard.admits(tag, charge, cost, now))
    }

    fn peek(&self, charges: &[Charge<'_>], now: Timestamp) -> Decision {
        let mut decision = Decision::new(now);
        for (tag, shard, charge, cost) in self.costs(charges) {
            decision.push(charge.rule, shard.peek(tag, charge, cost, now));
        }
        decision
    }

    fn charge(&mut self, charges: &[Charge<'_>], now: Timestamp) -> Decision {
        let mut decision = Decision::new(now);
        for ((tag, at), charge) in self.tags.iter().zip(charges) {
            let shard = &mut self.shards[*at];
            let at = shard.seek(*tag);
            let outcome = match shard.charge_quickly(at, *tag, charge, now) {
                Some(outcome) => outcome,
                None => shard.charge(at, *tag, charge, now),
            };
            decision.push(charge.rule, outcome);
        }
        decision
    }
}

impl Locked<'_> {
    /// Nothing is charged; but what was announced holds only if it is remembered, see [`Shard::settle`].
    #[cold]
    fn settle(&mut self, charges: &[Charge<'_>], now: Timestamp) {
        for ((tag, at), charge) in self.tags.iter().zip(charges) {
            self.shards[*at].settle(*tag, charge.quota, now);
        }
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    type Charging = Ready<Result<Decision, StoreError>>;

    #[inline]
    fn charge(&self, charges: &[Charge<'_>]) -> Answer<Self::Charging> {
        Answer::Now(Ok(self.decide(charges)))
    }

    fn peek(&self, charges: &[Charge<'_>]) -> impl Future<Output = Result<Decision, StoreError>> + Send {
        ready(Ok(self.look(charges)))
    }

    fn refund(&self, refunds: &[Refund<'_>]) -> impl Future<Output = Result<(), StoreError>> + Send {
        for refund in refunds {
            let tag = self.tag(refund.rule, &refund.key);
            let mut shard = self.shard(tag);
            shard.refund(tag, refund, self.inner.clock.now());
        }
        ready(Ok(()))
    }

    fn reset(&self, rule: RuleName, key: KeyRef<'_>) -> impl Future<Output = Result<(), StoreError>> + Send {
        let tag = self.tag(rule, &key);
        self.shard(tag).reset(tag);
        ready(Ok(()))
    }
}

impl<C> Clone for MemoryStore<C> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<C: Clock> fmt::Debug for MemoryStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("max_keys", &self.max_keys())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
