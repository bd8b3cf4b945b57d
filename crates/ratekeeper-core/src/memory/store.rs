//! The store: which shard a key is in, and what is done under its lock.

use std::fmt;
use std::sync::Arc;

use super::builder::MemoryStoreBuilder;
use super::hash::KeyHash;
use super::lock::{Guard, Lock};
use super::request::{Place, Request};
use super::shard::Shard;
use super::sweep::Sweeps;
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
/// - A key whose quota has changed takes some 40 bytes more, until it expires.
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
    pub(super) inner: Arc<Inner<C>>,
}

pub(super) struct Inner<C> {
    pub(super) clock: C,
    pub(super) hash: KeyHash,
    /// Their number is a power of two.
    pub(super) shards: Box<[Aligned]>,
    /// The bits of a hash that select the shard.
    pub(super) mask: usize,
    pub(super) max_keys: usize,
    pub(super) sweeps: Sweeps,
}

/// As many as one byte of a hash can distinguish.
pub(super) const MAX_SHARDS: usize = 1 << 8;

/// A shard in its own cache lines.
#[repr(align(64))]
pub(super) struct Aligned(pub(super) Lock<Shard>);

const _: () = assert!(size_of::<Aligned>() == 64);

/// As many charges need no allocation.
const FEW: usize = 4;

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
        if let [charge] = charges {
            let (now, outcome) = self.decide_one(charge);
            return Decision::one(now, charge.rule, outcome);
        }
        if charges.is_empty() {
            return Decision::new(self.inner.clock.now());
        }
        // Allocated before the shards are locked.
        let mut decision = Decision::several(Timestamp::UNIX_EPOCH, &[]);
        self.with(charges, |mut request| request.decide(&mut decision));
        self.sweep_if_due(decision.at());
        decision
    }

    /// Makes one charge, and returns its time and outcome.
    ///
    /// This is [`decide`](Self::decide) without a [`Decision`], which takes longer to build than to make.
    #[inline(always)]
    pub fn decide_one(&self, charge: &Charge<'_>) -> (Timestamp, Outcome) {
        let tag = self.tag(charge.rule, &charge.key);
        // Read before the lock is taken, so that the lock is held as briefly as possible.
        let known = self.inner.clock.now();
        let mut shard = self.lock(self.index(tag));
        let now = shard.time(known, &self.inner.clock);
        if let Some((outcome, _)) = shard.take(tag, charge, now) {
            // Returned from here, so that this is compiled in one piece with the caller's use of the outcome,
            // most of which is then never built.
            drop(shard);
            self.sweep_if_due(now);
            return (now, outcome);
        }
        // A copy, so that on the common path the charge need not be in memory.
        let outcome = shard.charge(tag, &{ *charge }, &[], now);
        drop(shard);
        self.sweep_if_due(now);
        (now, outcome)
    }

    /// What [`decide`](Self::decide) would answer, without changing anything.
    #[must_use]
    pub fn look(&self, charges: &[Charge<'_>]) -> Decision {
        let mut decision = Decision::new(Timestamp::UNIX_EPOCH);
        self.with(charges, |request| decision = request.peek());
        decision
    }

    /// Locks the shards of a request.
    #[inline]
    fn with(&self, charges: &[Charge<'_>], decide: impl FnOnce(Request<'_, '_, '_>)) {
        if charges.len() <= FEW {
            let mut places = [const { Place::NONE }; FEW];
            decide(Request::lock(self, charges, &mut places[..charges.len()]));
        } else {
            let mut places: Vec<_> = charges.iter().map(|_| Place::NONE).collect();
            decide(Request::lock(self, charges, &mut places));
        }
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
        self.inner.shards.iter().map(|shard| shard.0.lock().keys.evicted).sum()
    }

    /// How many keys were dropped in passing because they had expired.
    #[must_use]
    pub fn expired(&self) -> u64 {
        self.inner.shards.iter().map(|shard| shard.0.lock().keys.expired).sum()
    }

    #[inline]
    pub(super) fn tag(&self, rule: RuleName, key: &KeyRef<'_>) -> u64 {
        // One bit is always zero, because the largest number marks a free slot. It is neither one of the
        // upper bits, which place the hash in its shard, nor one of the lower ones, which select the shard.
        self.inner.hash.hash(rule.id(), key) & !(1 << 15)
    }

    /// The number of a key's shard.
    #[inline]
    pub(super) fn index(&self, tag: u64) -> usize {
        // The lowest byte selects the shard; the upper ones place the hash within it.
        usize::from(tag as u8) & self.inner.mask
    }

    #[inline]
    pub(super) fn lock(&self, index: usize) -> Guard<'_, Shard> {
        self.inner.shards[index].0.lock()
    }

    /// Locks the shard of a key, and returns the time.
    fn lock_at(&self, tag: u64) -> (Guard<'_, Shard>, Timestamp) {
        let mut shard = self.lock(self.index(tag));
        let now = self.inner.clock.now();
        shard.set_time(now);
        (shard, now)
    }

    #[inline]
    fn sweep_if_due(&self, now: Timestamp) {
        if let Some(turn) = self.inner.sweeps.take(now) {
            self.sweep(turn);
        }
    }

    /// Sweeps a shard, unless it is busy; then it is left for its next turn.
    #[cold]
    fn sweep(&self, turn: usize) {
        if let Some(mut shard) = self.inner.shards[turn % self.inner.shards.len()].0.try_lock() {
            let now = self.inner.clock.now();
            shard.set_time(now);
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
            let (mut shard, now) = self.lock_at(tag);
            shard.refund(tag, refund, now);
        }
        Answer::Now(Ok(()))
    }

    fn debit(&self, debits: &[Debit<'_>]) -> Answer<()> {
        for debit in debits {
            let tag = self.tag(debit.charge.rule, &debit.charge.key);
            let (mut shard, now) = self.lock_at(tag);
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
        self.lock(self.index(tag)).reset(tag);
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
