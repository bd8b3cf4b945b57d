//! A part of the keys, under one lock.

mod latest;
mod recent;
mod room;
mod with_state;

use std::sync::Arc;

use slab::Slab;

use self::latest::Latest;
use self::recent::Recent;
use self::with_state::with_state;
use super::MAX_SHARDS;
use super::ahead::Whereabouts;
use super::quotas::Quotas;
use super::slot::{Pack, Packed, Slot};
use super::table::{Home, Table};
use crate::algorithm::counter::State;
use crate::algorithm::{
    Basis, Counter, fixed_window, leaky_bucket, sliding_log, sliding_window, token_bucket,
};
use crate::{Algorithm, Charge, Debit, Outcome, Quota, Refund, Timestamp};

/// The hashes that the same request charges, each with the index of its shard.
pub(super) type Own<'a> = &'a [(u64, usize)];

#[derive(Debug)]
pub(super) struct Shard {
    table: Table,
    rest: Box<Rest>,
    latest: Latest,
}

/// What a charge on a known key mostly does not change. It is stored elsewhere, so that the rest of a shard
/// fits into one cache line with the lock.
#[derive(Debug)]
// The fields that such a charge reads come first, and are in one cache line as well.
#[repr(C, align(64))]
struct Rest {
    recent: Recent,
    quotas: Quotas,
    logs: Slab<sliding_log::State>,
    /// The counters of keys that are asked under two quotas at once.
    of_two: Slab<Counter>,
    max_keys: usize,
    evicted: u64,
    expired: u64,
    /// How many keys that still count may be evicted before the whole shard is searched for expired ones.
    evictions_until_purge: usize,
    /// The whereabouts of all shards, and the number of this one.
    whereabouts: (Arc<[Whereabouts; MAX_SHARDS]>, usize),
}

/// Whether a key's bucket is full only later than the quota that it was counted under takes at most.
#[inline]
fn is_beyond(slot: &Slot, quota: &Quota, now: Timestamp) -> bool {
    let is_bucket = matches!(quota.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket);
    is_bucket && <token_bucket::State as Pack>::unpack(slot.packed, quota, now).0.is_beyond(quota, now)
}

impl Rest {
    /// Whether a key was counted under exactly this quota, and no other.
    #[inline]
    fn is_under(&self, slot: &Slot, quota: &Quota) -> bool {
        !slot.is_of_two() && self.quotas.get(slot.quota) == quota
    }
}

impl Shard {
    /// The shard of this number, which is its index in the whereabouts of all shards.
    pub(super) fn new(number: usize, max_keys: usize, whereabouts: &Arc<[Whereabouts; MAX_SHARDS]>) -> Self {
        let (quotas, logs, of_two) = (Quotas::default(), Slab::new(), Slab::new());
        let whereabouts = (Arc::clone(whereabouts), number);
        let rest = Rest {
            recent: Recent::NONE,
            quotas,
            logs,
            of_two,
            max_keys,
            evicted: 0,
            expired: 0,
            evictions_until_purge: 0,
            whereabouts,
        };
        Self { table: Table::default(), rest: Box::new(rest), latest: Latest::default() }
    }

    /// The time at which this shard is used, given what the clock read before it was locked.
    #[inline(always)]
    pub(super) fn time(&mut self, known: Timestamp, read_again: impl FnOnce() -> Timestamp) -> Timestamp {
        self.latest.time(known, read_again)
    }

    /// Whether this shard may have been used later than at this time.
    #[inline(always)]
    pub(super) fn may_be_ahead_of(&self, now: Timestamp) -> bool {
        self.latest.may_be_after(now)
    }

    /// Records that this shard is used at this time, which was read after it was locked.
    #[inline(always)]
    pub(super) fn is_at(&mut self, now: Timestamp) {
        self.latest = Latest::new(now);
    }

    pub(super) const fn len(&self) -> usize {
        self.table.len()
    }

    /// How many keys were evicted before they expired.
    pub(super) const fn evicted(&self) -> u64 {
        self.rest.evicted
    }

    /// How many keys were dropped because they had expired.
    pub(super) const fn expired(&self) -> u64 {
        self.rest.expired
    }

    /// The home of a key in this shard.
    #[inline]
    pub(super) fn home(&self, tag: u64) -> Home {
        Home::new(tag, self.table.homes())
    }

    /// Where a key is, or would be.
    #[inline(always)]
    pub(super) fn seek(&self, tag: u64, home: Home) -> usize {
        let (Ok(at) | Err(at)) = self.table.find_from(self.table.likely(tag, home), tag);
        at
    }

    /// Charges one key if that can be done quickly; otherwise returns where it is likely to be.
    #[inline(always)]
    pub(super) fn charge_quickly(
        &mut self,
        tag: u64,
        home: Home,
        charge: &Charge<'_>,
        now: Timestamp,
    ) -> Result<Outcome, usize> {
        let at = self.table.likely(tag, home);
        let slot = self.table.sought(at, tag).ok_or(at)?;
        self.rest.recent.charge(slot, charge, now).ok_or(at)
    }

    /// Charges a known key, and returns its former state for [`put_back`](Self::put_back).
    ///
    /// Returns `None`, and does nothing, if the charge does not fit, or if that cannot be decided without
    /// changing anything: for a new key, a changed quota or a log.
    #[inline(always)]
    pub(super) fn charge_known(
        &mut self,
        at: usize,
        tag: u64,
        charge: &Charge<'_>,
        now: Timestamp,
    ) -> Option<(Packed, Outcome)> {
        let slot = self.table.sought(at, tag)?;
        let before = slot.packed;
        match self.rest.recent.charge(slot, charge, now) {
            Some(outcome) => Some((before, outcome)),
            None => self.charge_less_recent(at, charge, now).map(|outcome| (before, outcome)),
        }
    }

    #[inline(never)]
    fn charge_less_recent(&mut self, at: usize, charge: &Charge<'_>, now: Timestamp) -> Option<Outcome> {
        let (slot, quota) = (self.table.slot(at), charge.quota);
        if quota.algorithm() == Algorithm::SlidingLog || !self.rest.is_under(slot, quota) {
            return None;
        }
        self.rest.recent.turn_to(quota, slot.quota);
        let mut packed = slot.packed;
        let outcome = with_state!(mut packed, quota, now, self.rest.logs, |module, state| {
            module::charge(state, quota, charge.cost, now)
        });
        if !outcome.is_admitted() {
            return None;
        }
        slot.packed = packed;
        Some(outcome)
    }

    /// Takes back a charge that nobody has seen.
    #[cold]
    pub(super) fn put_back(&mut self, at: usize, before: Packed) {
        self.table.slot(at).packed = before;
    }

    /// Charges one key, which is likely to be here.
    #[inline(never)]
    pub(super) fn charge(
        &mut self,
        at: usize,
        tag: u64,
        charge: &Charge<'_>,
        own: Own<'_>,
        now: Timestamp,
    ) -> Outcome {
        let quota = charge.quota;
        let Ok(at) = self.table.find_from(at, tag) else {
            return self.charge_new(tag, charge, own, now);
        };
        let slot = self.table.slot(at);
        if !self.rest.is_under(slot, quota) || is_beyond(slot, quota, now) {
            return self.charge_changed(tag, at, charge, now);
        }
        self.rest.recent.turn_to(quota, slot.quota);
        with_state!(mut slot.packed, quota, now, self.rest.logs, |module, state| {
            module::charge(state, quota, charge.cost, now)
        })
    }

    /// Whether a charge of `cost` fits. (For a request that charges a key twice, `cost` is the sum.)
    #[inline]
    pub(super) fn admits(&self, tag: u64, charge: &Charge<'_>, cost: u32, now: Timestamp) -> bool {
        let slot = self.table.find(tag).map(|at| self.table.slots()[at]);
        slot.is_ok_and(|mut copy| self.rest.recent.charge(&mut copy, &charge.cost(cost), now).is_some())
            || self.peek(tag, charge, cost, now).is_admitted()
    }

    /// Charges a key that was counted under another quota, is under two, or [is beyond](is_beyond) its quota.
    #[cold]
    fn charge_changed(&mut self, tag: u64, at: usize, charge: &Charge<'_>, now: Timestamp) -> Outcome {
        if charge.quota.max() == 0 {
            // The quota is invalid and admits nothing, so the count is kept.
            return self.peek(tag, charge, charge.cost, now);
        }
        self.change(at, charge.quota, now, |counter| counter.charge(charge.quota, charge.cost, now))
    }

    #[cold]
    fn charge_new(&mut self, tag: u64, charge: &Charge<'_>, own: Own<'_>, now: Timestamp) -> Outcome {
        let mut counter = Counter::new(charge.quota);
        let outcome = counter.charge(charge.quota, charge.cost, now);
        if outcome.is_admitted() && charge.cost > 0 {
            self.insert(tag, counter, charge.quota, own, now);
        }
        outcome
    }

    fn insert(&mut self, tag: u64, counter: Counter, quota: &Quota, own: Own<'_>, now: Timestamp) {
        self.make_room(tag, own, now);
        let packed = self.pack(counter.state);
        let quota = self.acquire(quota);
        self.table.insert(Slot { tag, packed, quota });
        self.tell_whereabouts();
    }

    /// Must be called whenever the table may have moved.
    fn tell_whereabouts(&self) {
        let (all, number) = &self.rest.whereabouts;
        all[*number].tell(&self.table);
    }

    /// What a charge of `cost` would answer.
    pub(super) fn peek(&self, tag: u64, charge: &Charge<'_>, cost: u32, now: Timestamp) -> Outcome {
        match self.table.find(tag) {
            Ok(at) => {
                let slot = &self.table.slots()[at];
                let quota = charge.quota;
                if !self.rest.is_under(slot, quota) {
                    return self.counter(slot, now).peek(quota, cost, now);
                }
                with_state!(slot.packed, quota, now, self.rest.logs, |module, state| {
                    module::peek(state, quota, cost, now)
                })
            }
            Err(_) => Counter::new(charge.quota).peek(charge.quota, cost, now),
        }
    }

    /// Brings a key that is not charged to the quota and the time of the request, as a denied charge on that
    /// key alone would. So a changed quota, or a clock that was set back, counts from the first answer.
    /// Otherwise the key would be converted again for each answer, and locked for as long as the old state
    /// says.
    pub(super) fn settle(&mut self, tag: u64, quota: &Quota, now: Timestamp) {
        let Ok(at) = self.table.find(tag) else { return };
        if quota.max() == 0 {
            return;
        }
        let slot = self.table.slot(at);
        if !self.rest.is_under(slot, quota) || is_beyond(slot, quota, now) {
            return self.change(at, quota, now, |counter| counter.settle(quota, now));
        }
        with_state!(mut slot.packed, quota, now, self.rest.logs, |module, state| {
            module::State::settle(state, quota, now);
        });
    }

    pub(super) fn refund(&mut self, tag: u64, refund: &Refund<'_>, now: Timestamp) {
        if let Ok(at) = self.table.find(tag) {
            let slot = self.table.slot(at);
            if slot.is_of_two() {
                let asked = self.rest.of_two[slot.packed.narrow as usize].asked_last();
                let Some(asked) = asked else { return };
                // The key may no longer be under two quotas.
                return self.change(at, &asked, now, |counter| {
                    counter.refund(refund.cost, refund.receipt, now);
                });
            }
            let quota = self.rest.quotas.get(slot.quota);
            with_state!(mut slot.packed, quota, now, self.rest.logs, |module, state| {
                module::refund(state, quota, refund.cost, refund.receipt, now);
            });
        }
    }

    /// Takes what is owed, whether or not it fits.
    pub(super) fn debit(&mut self, tag: u64, debit: &Debit<'_>, now: Timestamp) {
        let Debit { charge: Charge { quota, cost, .. }, receipt } = *debit;
        if quota.max() == 0 || cost == 0 {
            return;
        }
        let Ok(at) = self.table.find(tag) else {
            let mut counter = Counter::new(quota);
            counter.debit(quota, cost, receipt, now);
            return self.insert(tag, counter, quota, &[], now);
        };
        let slot = self.table.slot(at);
        if !self.rest.is_under(slot, quota) || is_beyond(slot, quota, now) {
            return self.change(at, quota, now, |counter| counter.debit(quota, cost, receipt, now));
        }
        with_state!(mut slot.packed, quota, now, self.rest.logs, |module, state| {
            module::debit(state, quota, cost, receipt, now);
        });
    }

    pub(super) fn reset(&mut self, tag: u64) {
        if let Ok(at) = self.table.find(tag) {
            self.remove(at);
        }
    }

    /// Applies `what` under a quota to a key that was counted under another, is under two, or
    /// [is beyond](is_beyond) its quota. Afterwards the key is under one quota or under two.
    #[cold]
    fn change<R>(
        &mut self,
        at: usize,
        quota: &Quota,
        now: Timestamp,
        what: impl FnOnce(&mut Counter) -> R,
    ) -> R {
        let slot = self.table.slots()[at];
        let mut counter = if slot.is_of_two() {
            self.rest.of_two.remove(slot.packed.narrow as usize)
        } else {
            let counter = self.counter(&slot, now);
            self.release(&slot);
            counter
        };
        let result = what(&mut counter);
        *self.table.slot(at) = if counter.is_of_two() {
            Slot::of_two(slot.tag, self.rest.of_two.insert(counter) as u32)
        } else {
            let packed = self.pack(counter.state);
            Slot { tag: slot.tag, packed, quota: self.acquire(quota) }
        };
        result
    }

    fn pack(&mut self, state: State) -> Packed {
        match state {
            State::TokenBucket(state) => state.pack(),
            State::FixedWindow(state) => state.pack(),
            State::SlidingWindow(state) => state.pack(),
            State::LeakyBucket(state) => state.pack(),
            State::SlidingLog(log) => Packed { wide: 0, narrow: self.rest.logs.insert(log) as u32 },
        }
    }

    fn counter(&self, slot: &Slot, now: Timestamp) -> Counter {
        if slot.is_of_two() {
            return self.rest.of_two[slot.packed.narrow as usize].clone();
        }
        let quota = self.rest.quotas.get(slot.quota);
        let state = match quota.algorithm() {
            Algorithm::TokenBucket => State::TokenBucket(Pack::unpack(slot.packed, quota, now)),
            Algorithm::FixedWindow => State::FixedWindow(Pack::unpack(slot.packed, quota, now)),
            Algorithm::SlidingWindow => State::SlidingWindow(Pack::unpack(slot.packed, quota, now)),
            Algorithm::LeakyBucket => State::LeakyBucket(Pack::unpack(slot.packed, quota, now)),
            Algorithm::SlidingLog => State::SlidingLog(self.rest.logs[slot.packed.narrow as usize].clone()),
        };
        Counter::of(Basis::of(quota), state)
    }

    /// The number of a quota, for one more slot.
    fn acquire(&mut self, quota: &Quota) -> u32 {
        // New keys arrive in bulk, mostly under the same quota.
        if self.rest.recent.is(quota) {
            self.rest.quotas.acquire_again(self.rest.recent.number);
        } else {
            self.rest.recent = Recent::new(quota, self.rest.quotas.acquire(quota));
        }
        self.rest.recent.number
    }

    /// Releases what a slot refers to.
    fn release(&mut self, slot: &Slot) {
        if slot.is_of_two() {
            self.rest.of_two.remove(slot.packed.narrow as usize);
            return;
        }
        if self.rest.quotas.get(slot.quota).algorithm() == Algorithm::SlidingLog {
            self.rest.logs.remove(slot.packed.narrow as usize);
        }
        self.rest.quotas.release(slot.quota);
        // The number may be given to another quota.
        self.rest.recent = Recent::NONE;
    }

    fn remove(&mut self, at: usize) {
        let slot = self.table.remove(at);
        self.release(&slot);
    }
}
