//! The store that lives in the process.

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
use std::future::{Future, Ready, ready};
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
    Answer, Charge, Clock, Debit, Decision, KeyRef, Outcome, Refund, RuleName, Store, StoreError, StoreId,
    SystemClock, Timestamp,
};

/// A store in the memory of this process.
///
/// - **Bounded.** It holds at most [`max_keys`](MemoryStoreBuilder::max_keys) keys, of at most 40
///   bytes each. (A sliding log has some 100 more, and up to 48 for each admission that it remembers; and each
///   different quota that keys were counted under is kept once in each of up to 256 shards that has such keys, in some 300
///   bytes; a key that is asked under several
///   quotas at once, or whose bucket was charged before the clock was set back, has some 330 more, while it is so.) When it is full,
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
    /// Which bits of a hash say which shard.
    shard_bits: usize,
    /// Of each shard.
    whereabouts: Arc<[Whereabouts; MAX_SHARDS]>,
    max_keys: usize,
    sweeps: Turns,
}

/// As many as one byte of a hash tells apart.
const MAX_SHARDS: usize = 1 << 8;

/// A shard in a cache line of its own.
#[repr(align(64))]
struct Aligned(Lock<Shard>);

const _: () = assert!(size_of::<Aligned>() == 64);

impl MemoryStore {
    /// A store for up to a million keys, on the system's clock.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Starts making a store.
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
    /// Charges all or none. This is [`Store::charge`], which never fails here nor takes a while.
    #[inline]
    pub fn decide(&self, charges: &[Charge<'_>]) -> Decision {
        let [charge] = charges else {
            return self.decide_several(charges);
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
        let (shard, home) = self.ask(tag);
        // Before the lock is taken, so that it is held for as short as can be.
        let known = self.inner.clock.now();
        let mut shard = shard.lock();
        let now = shard.time(known, || self.time());
        let at = match shard.charge_quickly(tag, home, charge, now) {
            // In one piece with what is asked of the outcome, most of which is then not even made.
            Ok(outcome) => {
                drop(shard);
                self.sweep_if_due(now);
                return (now, outcome);
            }
            Err(at) => at,
        };
        // A copy, so that those who were quick need not have had it in memory.
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
        // Look first: what was charged could be given back, but not what it took the place of.
        let decision = if locked.admit(charges, now) {
            locked.charge(charges, now)
        } else {
            let decision = locked.peek(charges, now);
            locked.settle(charges, now);
            decision
        };
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

    /// How many keys were dropped in passing because they had expired.
    #[must_use]
    pub fn expired(&self) -> u64 {
        self.inner.shards.iter().map(|shard| shard.0.lock().expired()).sum()
    }

    #[inline]
    fn tag(&self, rule: RuleName, key: &KeyRef<'_>) -> u64 {
        // One bit is always zero, as the largest number is what a free slot has. Neither one of the upper bits,
        // which place the hash in its shard, nor one of the lower, which choose the shard; but the upper one of its mark.
        self.inner.hash.hash(rule.id(), key) & !(1 << 15)
    }

    #[inline]
    fn index(&self, tag: u64) -> usize {
        // The lowest byte: the upper ones place the hash within the shard.
        usize::from(tag as u8) & self.inner.shard_bits
    }

    /// Asks memory for what a charge on a key needs, which is around its home. (The shards themselves are near.)
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

    /// The time, read under a lock. Not as part of who calls it, which mostly need not.
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

    /// Sweeps a shard, unless it is busy; it has its turn again.
    #[cold]
    fn sweep(&self, turn: usize, known: Timestamp) {
        if let Some(mut shard) = self.inner.shards[turn % self.inner.shards.len()].0.try_lock() {
            let now = shard.time(known, || self.time());
            shard.sweep(now);
        }
    }
}

impl<C: Clock> Store for MemoryStore<C> {
    type Charging = Ready<Result<Decision, StoreError>>;

    #[inline]
    fn charge(&self, charges: &[Charge<'_>]) -> Answer<Self::Charging> {
        Answer::Now(Ok(self.decide(charges)))
    }

    #[inline(always)]
    fn charge_at_once(&self, charge: &Charge<'_>) -> Option<(Timestamp, Outcome)> {
        Some(self.decide_one(charge))
    }

    fn peek(&self, charges: &[Charge<'_>]) -> impl Future<Output = Result<Decision, StoreError>> + Send {
        ready(Ok(self.look(charges)))
    }

    fn refund(&self, refunds: &[Refund<'_>]) -> impl Future<Output = Result<(), StoreError>> + Send {
        for refund in refunds {
            let tag = self.tag(refund.rule, &refund.key);
            let mut shard = self.shard(tag);
            let now = self.time();
            shard.is_at(now);
            shard.refund(tag, refund, now);
        }
        ready(Ok(()))
    }

    fn debit(&self, debits: &[Debit<'_>]) -> impl Future<Output = Result<(), StoreError>> + Send {
        for debit in debits {
            let tag = self.tag(debit.charge.rule, &debit.charge.key);
            let mut shard = self.shard(tag);
            let now = self.time();
            shard.is_at(now);
            shard.debit(tag, debit, now);
            drop(shard);
            self.sweep_if_due(now);
        }
        ready(Ok(()))
    }

    fn id(&self) -> Option<StoreId> {
        Some(StoreId::of(&self.inner))
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
