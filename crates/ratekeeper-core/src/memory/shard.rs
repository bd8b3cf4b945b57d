//! A part of the keys, under one lock.

use super::slot::{Held, Slot};
use super::states::States;
use super::table::Table;
use crate::algorithm::{Ask, Counter};
use crate::{Charge, Clock, Debit, Outcome, Quota, Refund, Timestamp};

/// What a charge of a bucket changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Undo {
    at: usize,
    held: Held,
}

// What a charge needs is in one cache line with the lock, and the rest is elsewhere.
#[derive(Debug)]
pub(super) struct Shard {
    /// When the shard was last used.
    latest: Timestamp,
    pub(super) table: Table,
    pub(super) states: Box<States>,
    pub(super) keys: Box<Keys>,
}

/// How many keys there may be, and how many are gone.
#[derive(Debug, Default)]
pub(super) struct Keys {
    pub(super) max: usize,
    /// How many keys were evicted before they expired.
    pub(super) evicted: u64,
    /// How many keys were dropped because they had expired.
    pub(super) expired: u64,
    /// How many keys that still count may be evicted before the whole shard is searched for expired ones.
    pub(super) evictions_until_purge: usize,
}

impl Shard {
    pub(super) fn new(max_keys: usize) -> Self {
        let keys = Box::new(Keys { max: max_keys, ..Keys::default() });
        Self { latest: Timestamp::UNIX_EPOCH, table: Table::default(), states: Box::default(), keys }
    }

    pub(super) const fn len(&self) -> usize {
        self.table.len()
    }

    /// The time at which the shard is used, given what the clock read before it was locked.
    ///
    /// A thread that read the clock later may have been quicker to take the lock. Then the clock is read again,
    /// so that time does not run backwards for a key.
    #[inline(always)]
    pub(super) fn time(&mut self, known: Timestamp, clock: &impl Clock) -> Timestamp {
        self.latest = if self.is_ahead_of(known) { clock.now() } else { known };
        self.latest
    }

    /// Whether the shard was used later than at this time.
    #[inline(always)]
    pub(super) fn is_ahead_of(&self, known: Timestamp) -> bool {
        known < self.latest
    }

    /// Records that the shard is used at this time, which was read after it was locked.
    pub(super) const fn set_time(&mut self, now: Timestamp) {
        self.latest = now;
    }

    /// Charges one key if that is quickly done, as it mostly is: it is known, it was counted under this quota
    /// and no other, this is a bucket, and the cost fits at once. Otherwise it changes nothing.
    #[inline(always)]
    pub(super) fn take(&mut self, tag: u64, charge: &Charge<'_>, now: Timestamp) -> Option<(Outcome, Undo)> {
        let at = self.table.find(tag).ok()?;
        let held = &mut self.table.slot(at).held;
        if !charge.quota.is_bucket() || !self.states.is_under(held, charge.quota) {
            return None;
        }
        let undo = Undo { at, held: *held };
        held.take(charge.quota, Ask::of(charge), now).map(|outcome| (outcome, undo))
    }

    /// Reads the memory that is needed to find a key.
    #[inline]
    pub(super) fn read_ahead(&self, tag: u64) -> u64 {
        let home = self.table.home(tag);
        let read = |at: usize| self.table.slots().get(at).map_or(0, |slot| slot.tag);
        read(home) ^ read(home + 2)
    }

    /// Takes back a charge that nobody has seen.
    pub(super) fn undo(&mut self, Undo { at, held }: Undo) {
        self.table.slot(at).held = held;
    }

    /// Charges one key. `own` are the keys that the same request charges.
    #[inline(never)]
    pub(super) fn charge(&mut self, tag: u64, charge: &Charge<'_>, own: &[u64], now: Timestamp) -> Outcome {
        let (quota, ask) = (charge.quota, Ask::of(charge));
        let Ok(at) = self.table.find(tag) else {
            return self.charge_new(tag, charge, own, now);
        };
        let held = &mut self.table.slot(at).held;
        let outcome = if self.states.is_under(held, quota) {
            self.states.update(held, |state, quota| state.charge(quota, ask, now))
        } else {
            self.change(at, |counter| counter.charge(quota, ask, now))
        };
        self.table.slot(at).held.set_denied(!outcome.is_admitted());
        outcome
    }

    #[cold]
    #[inline(never)]
    fn charge_new(&mut self, tag: u64, charge: &Charge<'_>, own: &[u64], now: Timestamp) -> Outcome {
        let mut counter = Counter::new(charge.quota);
        let outcome = counter.charge(charge.quota, Ask::of(charge), now);
        if outcome.is_admitted() && charge.cost > 0 {
            self.insert(tag, counter, own, now);
        }
        outcome
    }

    /// What a charge would answer.
    pub(super) fn peek(&self, tag: u64, charge: &Charge<'_>, now: Timestamp) -> Outcome {
        let (quota, ask) = (charge.quota, Ask::of(charge));
        match self.table.find(tag).map(|at| &self.table.slots()[at].held) {
            Ok(held) if self.states.is_under(held, quota) => {
                self.states.read(held, |state, quota| state.peek(quota, ask, now))
            }
            _ => self.counter(tag, quota).peek(quota, ask, now),
        }
    }

    /// A copy of a key's counter; a new one if the key is not known.
    pub(super) fn counter(&self, tag: u64, quota: &Quota) -> Counter {
        match self.table.find(tag) {
            Ok(at) => self.states.counter(&self.table.slots()[at].held),
            Err(_) => Counter::new(quota),
        }
    }

    /// Brings a key that is not charged to the quota and the time of the request, as a denied charge on that
    /// key alone would; `denied` if the key is what denied it.
    pub(super) fn settle(&mut self, tag: u64, quota: &Quota, denied: bool, now: Timestamp) {
        let Ok(at) = self.table.find(tag) else { return };
        let held = &mut self.table.slot(at).held;
        if self.states.is_under(held, quota) {
            self.states.settle(held, now);
        } else {
            self.change(at, |counter| counter.settle(quota, now));
        }
        if denied {
            self.table.slot(at).held.set_denied(true);
        }
    }

    pub(super) fn refund(&mut self, tag: u64, refund: &Refund<'_>, now: Timestamp) {
        let Ok(at) = self.table.find(tag) else { return };
        self.change(at, |counter| counter.refund(refund.cost, refund.receipt, now));
    }

    /// Takes what is due, whether or not it fits.
    pub(super) fn debit(&mut self, tag: u64, debit: &Debit<'_>, now: Timestamp) {
        let Debit { charge: Charge { quota, cost, .. }, receipt } = *debit;
        if let Ok(at) = self.table.find(tag) {
            self.change(at, |counter| counter.debit(quota, cost, receipt, now));
        } else if quota.max() > 0 && cost > 0 {
            let mut counter = Counter::new(quota);
            counter.debit(quota, cost, receipt, now);
            self.insert(tag, counter, &[], now);
        }
    }

    pub(super) fn reset(&mut self, tag: u64) {
        if let Ok(at) = self.table.find(tag) {
            self.remove(at);
        }
    }

    /// Changes the counter of a key.
    #[inline(never)]
    pub(super) fn change<R>(&mut self, at: usize, change: impl FnOnce(&mut Counter) -> R) -> R {
        let Slot { tag, held } = self.table.slots()[at];
        let mut counter = self.states.take(&held);
        let result = change(&mut counter);
        let mut changed: Held = self.states.put(counter);
        changed.set_denied(held.was_denied());
        *self.table.slot(at) = Slot { tag, held: changed };
        result
    }

    fn insert(&mut self, tag: u64, counter: Counter, own: &[u64], now: Timestamp) {
        self.make_room(tag, own, now);
        let held = self.states.put(counter);
        self.table.insert(Slot { tag, held });
    }

    pub(super) fn remove(&mut self, at: usize) {
        let slot = self.table.remove(at);
        self.states.take(&slot.held);
    }
}
