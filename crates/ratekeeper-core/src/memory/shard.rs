//! A part of the keys, under one lock.

mod latest;
mod recent;
mod room;

use std::sync::Arc;

use slab::Slab;

use self::latest::Latest;
use self::recent::Recent;
use super::MAX_SHARDS;
use super::ahead::Whereabouts;
use super::quotas::Quotas;
use super::slot::{Pack, Packed, Slot};
use super::table::{Home, Table};
use crate::algorithm::gcra::Bucket;
use crate::algorithm::log::Log;
use crate::algorithm::window::{FixedWindow, SlidingWindow};
use crate::algorithm::{Ask, Count, Counted, Counter, State};
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
    logs: Slab<Log>,
    /// The counters that do not fit into a slot: those with a previous state, and those of sliding windows
    /// with very large counts.
    spilled: Slab<Counter>,
    max_keys: usize,
    evicted: u64,
    expired: u64,
    /// How many keys that still count may be evicted before the whole shard is searched for expired ones.
    evictions_until_purge: usize,
    /// The whereabouts of all shards, and the number of this one.
    whereabouts: (Arc<[Whereabouts; MAX_SHARDS]>, usize),
}

impl Rest {
    /// Whether a key was counted under this quota, and no other.
    #[inline]
    fn is_under(&self, slot: &Slot, quota: &Quota) -> bool {
        !slot.is_spilled() && self.quotas.get(slot.quota()).counts_like(quota)
    }

    /// Reads the state of a key that is not spilled, and its quota.
    fn read<R>(&self, slot: &Slot, read: impl FnOnce(&dyn Count, &Quota) -> R) -> R {
        let quota = self.quotas.get(slot.quota());
        match quota.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => read(&Bucket::unpack(slot.packed), quota),
            Algorithm::FixedWindow => read(&FixedWindow::unpack(slot.packed), quota),
            Algorithm::SlidingWindow => read(&SlidingWindow::unpack(slot.packed), quota),
            Algorithm::SlidingLog => read(&self.logs[slot.packed.narrow as usize], quota),
        }
    }

    /// The counter of a slot. What is not in the slot is taken out of its place.
    fn take(&mut self, slot: &Slot) -> Counter {
        let at = slot.packed.narrow as usize;
        if slot.is_spilled() {
            return self.spilled.remove(at);
        }
        let quota = *self.quotas.get(slot.quota());
        if quota.algorithm() == Algorithm::SlidingLog {
            let state = State::Log(self.logs.remove(at));
            return Counter { current: Counted { quota, state }, previous: None };
        }
        self.counter(slot)
    }

    /// A copy of the counter of a slot.
    fn counter(&self, slot: &Slot) -> Counter {
        let at = slot.packed.narrow as usize;
        if slot.is_spilled() {
            return self.spilled[at].clone();
        }
        let quota = *self.quotas.get(slot.quota());
        let state = match quota.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => State::Bucket(Pack::unpack(slot.packed)),
            Algorithm::FixedWindow => State::FixedWindow(Pack::unpack(slot.packed)),
            Algorithm::SlidingWindow => State::SlidingWindow(Pack::unpack(slot.packed)),
            Algorithm::SlidingLog => State::Log(self.logs[at].clone()),
        };
        Counter { current: Counted { quota, state }, previous: None }
    }
}

impl Shard {
    /// The shard of this number, which is its index in the whereabouts of all shards.
    pub(super) fn new(number: usize, max_keys: usize, whereabouts: &Arc<[Whereabouts; MAX_SHARDS]>) -> Self {
        let (quotas, logs, spilled) = (Quotas::default(), Slab::new(), Slab::new());
        let whereabouts = (Arc::clone(whereabouts), number);
        let rest = Rest {
            recent: Recent::NONE,
            quotas,
            logs,
            spilled,
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
        // Their states may not be in the slot.
        let elsewhere = matches!(quota.algorithm(), Algorithm::SlidingLog | Algorithm::SlidingWindow);
        if elsewhere || !self.rest.is_under(slot, quota) {
            return None;
        }
        self.rest.recent.turn_to(quota, slot.quota());
        let before = *slot;
        let outcome = self.update(at, |state, quota| state.charge(quota, Ask::of(charge), now));
        if !outcome.is_admitted() {
            *self.table.slot(at) = before;
            return None;
        }
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
        let outcome = if self.rest.is_under(slot, quota) {
            self.rest.recent.turn_to(quota, slot.quota());
            self.update(at, |state, quota| state.charge(quota, Ask::of(charge), now))
        } else {
            self.change(at, |counter| counter.charge(quota, Ask::of(charge), now))
        };
        self.table.slot(at).set_denied(!outcome.is_admitted());
        outcome
    }

    /// Whether a charge fits.
    #[inline]
    pub(super) fn admits(&self, tag: u64, charge: &Charge<'_>, now: Timestamp) -> bool {
        let slot = self.table.find(tag).map(|at| self.table.slots()[at]);
        slot.is_ok_and(|mut copy| self.rest.recent.charge(&mut copy, charge, now).is_some())
            || self.peek(tag, charge, now).is_admitted()
    }

    #[cold]
    fn charge_new(&mut self, tag: u64, charge: &Charge<'_>, own: Own<'_>, now: Timestamp) -> Outcome {
        let mut counter = Counter::new(charge.quota);
        let outcome = counter.charge(charge.quota, Ask::of(charge), now);
        if outcome.is_admitted() && charge.cost > 0 {
            self.insert(tag, counter, own, now);
        }
        outcome
    }

    fn insert(&mut self, tag: u64, counter: Counter, own: Own<'_>, now: Timestamp) {
        self.make_room(tag, own, now);
        let slot = self.store(tag, counter);
        self.table.insert(slot);
        self.tell_whereabouts();
    }

    /// Must be called whenever the table may have moved.
    fn tell_whereabouts(&self) {
        let (all, number) = &self.rest.whereabouts;
        all[*number].tell(&self.table);
    }

    /// What a charge would answer.
    pub(super) fn peek(&self, tag: u64, charge: &Charge<'_>, now: Timestamp) -> Outcome {
        let (quota, ask) = (charge.quota, Ask::of(charge));
        let Ok(at) = self.table.find(tag) else { return Counter::new(quota).peek(quota, ask, now) };
        let slot = &self.table.slots()[at];
        if self.rest.is_under(slot, quota) {
            self.rest.read(slot, |state, quota| state.peek(quota, ask, now))
        } else {
            self.rest.counter(slot).peek(quota, ask, now)
        }
    }

    /// A copy of a key's counter; a new one if the key is not known.
    pub(super) fn counter(&self, tag: u64, quota: &Quota) -> Counter {
        let slot = self.table.find(tag).map(|at| &self.table.slots()[at]);
        slot.map_or_else(|_| Counter::new(quota), |slot| self.rest.counter(slot))
    }

    /// Brings a key that is not charged to the quota and the time of the request, as a denied charge on that
    /// key alone would; `denied` if the key is what denied it. So a changed quota, or a clock that was set
    /// back, counts from the first answer. Otherwise the key would be converted again for each answer, and
    /// locked for as long as the old state says.
    pub(super) fn settle(&mut self, tag: u64, quota: &Quota, denied: bool, now: Timestamp) {
        let Ok(at) = self.table.find(tag) else { return };
        if self.rest.is_under(self.table.slot(at), quota) {
            self.update(at, |state, quota| state.settle(quota, now));
        } else {
            self.change(at, |counter| counter.settle(quota, now));
        }
        if denied {
            self.table.slot(at).set_denied(true);
        }
    }

    pub(super) fn refund(&mut self, tag: u64, refund: &Refund<'_>, now: Timestamp) {
        let Ok(at) = self.table.find(tag) else { return };
        self.change(at, |counter| counter.refund(refund.cost, refund.receipt, now));
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
            return self.insert(tag, counter, &[], now);
        };
        self.change(at, |counter| counter.debit(quota, cost, receipt, now));
    }

    pub(super) fn reset(&mut self, tag: u64) {
        if let Ok(at) = self.table.find(tag) {
            self.remove(at);
        }
    }

    /// Changes the state of a key that is not spilled.
    fn update<R>(&mut self, at: usize, update: impl FnOnce(&mut dyn Count, &Quota) -> R) -> R {
        let (slot, rest) = (self.table.slot(at), &mut *self.rest);
        let quota = rest.quotas.get(slot.quota());
        let (result, packed) = match quota.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                let mut state = Bucket::unpack(slot.packed);
                (update(&mut state, quota), state.pack())
            }
            Algorithm::FixedWindow => {
                let mut state = FixedWindow::unpack(slot.packed);
                (update(&mut state, quota), state.pack())
            }
            Algorithm::SlidingWindow => {
                let mut state = SlidingWindow::unpack(slot.packed);
                let result = update(&mut state, quota);
                if state.pack().is_none() {
                    self.change(at, |counter| counter.current.state = State::SlidingWindow(state));
                    return result;
                }
                (result, state.pack())
            }
            Algorithm::SlidingLog => {
                (update(&mut rest.logs[slot.packed.narrow as usize], quota), Some(slot.packed))
            }
        };
        if let Some(packed) = packed {
            slot.packed = packed;
        }
        result
    }

    /// Changes the counter of a key.
    #[cold]
    fn change<R>(&mut self, at: usize, change: impl FnOnce(&mut Counter) -> R) -> R {
        let slot = self.table.slots()[at];
        let mut counter = self.rest.take(&slot);
        let result = change(&mut counter);
        // The number of a quota that stays is acquired again before it is released.
        let mut stored = self.store(slot.tag, counter);
        stored.set_denied(slot.was_denied());
        self.release(&slot);
        *self.table.slot(at) = stored;
        result
    }

    /// The slot for a counter.
    fn store(&mut self, tag: u64, mut counter: Counter) -> Slot {
        let packed = match (&mut counter.current.state, &counter.previous) {
            (_, Some(_)) => None,
            (State::Bucket(bucket), None) => bucket.pack(),
            (State::FixedWindow(window), None) => window.pack(),
            (State::SlidingWindow(window), None) => window.pack(),
            (State::Log(log), None) => {
                Some(Packed { wide: 0, narrow: self.rest.logs.insert(std::mem::take(log)) as u32 })
            }
        };
        match packed {
            Some(packed) => Slot::new(tag, packed, self.acquire(&counter.current.quota)),
            None => Slot::spilled(tag, self.rest.spilled.insert(counter) as u32),
        }
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

    /// Releases the quota that a slot refers to.
    fn release(&mut self, slot: &Slot) {
        // A number that is free may be given to another quota.
        if !slot.is_spilled() && self.rest.quotas.release(slot.quota()) {
            self.rest.recent = Recent::NONE;
        }
    }

    fn remove(&mut self, at: usize) {
        let slot = self.table.remove(at);
        self.rest.take(&slot);
        self.release(&slot);
    }
}
