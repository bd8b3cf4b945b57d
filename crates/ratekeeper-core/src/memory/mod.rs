//! The in-memory store.

mod ahead;
mod builder;
mod few;
mod hash;
mod lock;
mod locked;
mod marks;
mod quotas;
mod shard;
mod slot;
mod table;
mod turn;

use std::fmt;
use std::sync::Arc;

use self::ahead::Whereabouts;
pub use self::builder::MemoryStoreBuilder;
pub use self::hash::KeyHash;
use self::lock::{Guard, Lock};
use self::locked::Locked;
use self::shard::Shard;
use self::table::Home;
use self::turn::Turns;
use crate::{
    Answer, Charge, Clock, Debit, Decision, KeyRef, Outcome, Refund, RuleName, Store, StoreId, SystemClock,
    Timestamp,
};

/// A store in the memory of this process.
///
/// - **Bounded.** It holds at most [`max_keys`](MemoryStoreBuilder::max_keys) keys, of at most 40 bytes each,
///   plus what is listed below. When it is full, a new key takes the place of the one that matters least
///   among some neighbours: one that has expired, or else the one that has used least of its budget.
/// - **No thread.** Keys whose budget is full again are dropped in passing, by incoming calls.
/// - **No keys.** It holds a 64-bit hash of rule and key, not the key itself. The hash is keyed with random
///   numbers that belong to this store, and it is universal: for any two keys that a caller chooses, the
///   chance that they share a counter is below 2⁻⁶², and nothing that can be learned from the outside
///   improves it.
/// - **Exact.** Charges on any number of rules are decided together, under locks on the shards that hold
///   them.
///
/// Some keys and quotas take more memory:
///
/// - A sliding log takes some 100 bytes more, and up to 48 for each admission that it remembers.
/// - Each different quota takes some 300 bytes in each shard that holds keys counted under it. There are up
///   to 256 shards.
/// - A key whose quota has changed takes some 400 bytes more, until its budget is full again.
///
/// Clones share the same store.
///
/// ```
/// use ratekeeper_core::{Charge, Key, MemoryStore, Quota, RuleName};
///
/// let store = MemoryStore::new();
/// let rule = RuleName::new("per-user")?;
/// let (quota, key) = (Quota::per_minute(2), Key::from("alice"));
/// let charge = [Charge::new(rule, &key, &quota)];
/// assert!(store.decide(&charge).is_admitted());
/// assert!(store.decide(&charge).is_admitted());
/// assert!(!store.decide(&charge).is_admitted());
/// # Ok::<(), ratekeeper_core::RuleNameError>(())
/// ```
pub struct MemoryStore<C = SystemClock> {
    inner: Arc<Inner<C>>,
}

struct Inner<C> {
    clock: C,
    hash: KeyHash,
    /// Their number is a power of two.
    shards: Box<[Aligned]>,
    /// The bits of a hash that select the shard.
    shard_bits: usize,
    /// The whereabouts of each shard.
    whereabouts: Arc<[Whereabouts; MAX_SHARDS]>,
    max_keys: usize,
    sweeps: Turns,
}

/// As many as one byte of a hash can distinguish.
const MAX_SHARDS: usize = 1 << 8;

/// A shard in its own cache line.
#[repr(align(64))]
struct Aligned(Lock<Shard>);

const _: () = assert!(size_of::<Aligned>() == 64);

impl MemoryStore {
    /// A store for up to a million keys, on the system's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Starts building a store.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder::new()
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: Clock> MemoryStore<C> {
    /// Makes all charges or none. This is [`Store::charge`], which here never fails and never waits.
    #[inline]
    pub fn decide(&self, charges: &[Charge<'_>]) -> Decision {
        let [charge] = charges else {
            return self.decide_several(charges);
        };
        let (now, outcome) = self.decide_one(charge);
        Decision::one(now, charge.rule, outcome)
    }

    /// Makes one charge, and returns its time and outcome.
    #[inline(always)]
    pub fn decide_one(&self, charge: &Charge<'_>) -> (Timestamp, Outcome) {
        let tag = self.tag(charge.rule, &charge.key);
        let (shard, home) = self.ask(tag);
        // Read before the lock is taken, so that the lock is held as briefly as possible.
        let known = self.inner.clock.now();
        let mut shard = shard.lock();
        let now = shard.time(known, || self.time());
        let at = match shard.charge_quickly(tag, home, charge, now) {
            // Returned from here, so that this is compiled in one piece with the caller's use of the outcome,
            // most of which is then never built.
            Ok(outcome) => {
                drop(shard);
                self.sweep_if_due(now);
                return (now, outcome);
            }
            Err(at) => at,
        };
        // A copy, so that on the quick path the charge need not be in memory.
        let outcome = shard.charge(at, tag, &{ *charge }, &[], now);
        drop(shard);
        self.sweep_if_due(now);
        (now, outcome)
    }

    #[inline(never)]
    fn decide_several(&self, charges: &[Charge<'_>]) -> Decision {
        let decided = if let Ok(two) = <&[_; 2]>::try_from(charges) {
            few::charge(self, two)
        } else if let Ok(three) = <&[_; 3]>::try_from(charges) {
            few::charge(self, three)
        } else {
            None
        };
        decided.unwrap_or_else(|| self.decide_all(charges))
    }

    fn decide_all(&self, charges: &[Charge<'_>]) -> Decision {
        let mut locked = Locked::new(self, charges);
        let now = self.time();
        locked.is_at(now);
        // Peek first: a charge could be given back, but not the key that it evicted.
        let decision = if locked.admit(charges, now) {
            locked.charge(charges, now)
        } else {
            let decision = locked.peek(charges, now);
            locked.settle(charges, &decision, now);
            decision
        };
        drop(locked);
        self.sweep_if_due(now);
        decision
    }

    /// What [`decide`](Self::decide) would answer, without changing anything.
    #[must_use]
    pub fn look(&self, charges: &[Charge<'_>]) -> Decision {
        let locked = Locked::new(self, charges);
        locked.peek(charges, self.inner.clock.now())
    }

    /// How many keys the store holds, including expired ones that have yet to be dropped.
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

    /// How many keys were evicted to make room for others before they expired.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.inner.shards.iter().map(|shard| shard.0.lock().evicted()).sum()
    }

    /// How many keys were dropped in passing because they had expired.
    #[must_use]
    pub fn expired(&self) -> u64 {
        self.inner.shards.iter().map(|shard| shard.0.lock().expired()).sum()
    }

    #[inline]
    fn tag(&self, rule: RuleName, key: &KeyRef<'_>) -> u64 {
        // One bit is always zero, because the largest number marks a free slot. It is neither one of the
        // upper bits, which place the hash in its shard, nor one of the lower ones, which select the shard,
        // but the upper bit of the mark.
        self.inner.hash.hash(rule.id(), key) & !(1 << 15)
    }

    #[inline]
    fn index(&self, tag: u64) -> usize {
        // The lowest byte selects the shard; the upper ones place the hash within it.
        usize::from(tag as u8) & self.inner.shard_bits
    }

    /// Prefetches what a charge on a key needs, which is around its home. (The shards themselves are near.)
    #[inline(always)]
    fn ask(&self, tag: u64) -> (&Lock<Shard>, Home) {
        let number = self.index(tag);
        let shard = &self.inner.shards[number].0;
        (shard, self.inner.whereabouts[number].ask(tag))
    }

    #[inline]
    fn shard(&self, tag: u64) -> Guard<'_, Shard> {
        self.inner.shards[self.index(tag)].0.lock()
    }

    /// The time, read under a lock. Not inlined, because most callers do not need it.
    #[inline(never)]
    fn time(&self) -> Timestamp {
        self.inner.clock.now()
    }

    #[inline]
    fn sweep_if_due(&self, now: Timestamp) {
        if let Some(turn) = self.inner.sweeps.take(now) {
            self.sweep(turn, now);
        }
    }

    /// Sweeps a shard, unless it is busy; then it is left for its next turn.
    #[cold]
    fn sweep(&self, turn: usize, known: Timestamp) {
        if let Some(mut shard) = self.inner.shards[turn % self.inner.shards.len()].0.try_lock() {
            let now = shard.time(known, || self.time());
            shard.sweep(now);
        }
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    fn charge(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        Answer::Now(Ok(self.decide(charges)))
    }

    fn peek(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        Answer::Now(Ok(self.look(charges)))
    }

    fn refund(&self, refunds: &[Refund<'_>]) -> Answer<()> {
        for refund in refunds {
            let tag = self.tag(refund.rule, &refund.key);
            let mut shard = self.shard(tag);
            let now = self.time();
            shard.is_at(now);
            shard.refund(tag, refund, now);
        }
        Answer::Now(Ok(()))
    }

    fn debit(&self, debits: &[Debit<'_>]) -> Answer<()> {
        for debit in debits {
            let tag = self.tag(debit.charge.rule, &debit.charge.key);
            let mut shard = self.shard(tag);
            let now = self.time();
            shard.is_at(now);
            shard.debit(tag, debit, now);
            drop(shard);
            self.sweep_if_due(now);
        }
        Answer::Now(Ok(()))
    }

    fn id(&self) -> Option<StoreId> {
        Some(StoreId::of(&self.inner))
    }

    fn reset(&self, rule: RuleName, key: KeyRef<'_>) -> Answer<()> {
        let tag = self.tag(rule, &key);
        self.shard(tag).reset(tag);
        Answer::Now(Ok(()))
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
