//! A request with any number of charges, decided under the locks of all shards that it needs.

use std::hint::black_box;

use smallvec::SmallVec;

use super::lock::Guard;
use super::shard::{Shard, Undo};
use super::store::MemoryStore;
use crate::algorithm::peek_after;
use crate::{Charge, Clock, Decision, Outcome, RuleName, Timestamp};

/// Where a charge is made.
pub(super) struct Place<'a> {
    tag: u64,
    /// The number of the shard, then that of the charge.
    order: (u32, u32),
    /// The charge that has locked the shard.
    locked_by: usize,
    shard: Option<Guard<'a, Shard>>,
    /// What was charged.
    undo: Option<Undo>,
}

impl Place<'_> {
    pub(super) const NONE: Self = Self { tag: 0, order: (0, 0), locked_by: 0, shard: None, undo: None };
}

/// The charges of a request, each with its place, while their shards are locked.
pub(super) struct Request<'a, 'p, 'c> {
    charges: &'c [Charge<'c>],
    /// In the order of the charges.
    places: &'p mut [Place<'a>],
    now: Timestamp,
}

impl<'a, 'p, 'c> Request<'a, 'p, 'c> {
    /// Locks the shards in the order of their numbers, so that two requests never wait for each other.
    #[inline(always)]
    pub(super) fn lock<C: Clock>(
        store: &'a MemoryStore<C>,
        charges: &'c [Charge<'c>],
        places: &'p mut [Place<'a>],
    ) -> Self {
        for (i, (place, charge)) in places.iter_mut().zip(charges).enumerate() {
            place.tag = store.tag(charge.rule, &charge.key);
            place.order = (store.index(place.tag) as u32, i as u32);
        }
        let known = store.inner.clock.now();
        let mut last = None;
        let mut next = places.iter().map(|place| place.order).min();
        while let Some((index, i)) = next {
            let i = i as usize;
            match last {
                Some((locked, by)) if locked == index => places[i].locked_by = by,
                _ => {
                    places[i].shard = Some(store.lock(index as usize));
                    places[i].locked_by = i;
                    last = Some((index, i));
                }
            }
            let locked = places[i].order;
            next = places.iter().map(|place| place.order).filter(|order| *order > locked).min();
        }
        let ahead = places.iter().flat_map(|place| &place.shard).any(|shard| shard.is_ahead_of(known));
        let now = if ahead { store.inner.clock.now() } else { known };
        places.iter_mut().flat_map(|place| &mut place.shard).for_each(|shard| shard.set_time(now));
        Self { charges, places, now }
    }

    #[inline(always)]
    fn shard(&self, i: usize) -> &Shard {
        let locked_by = self.places[i].locked_by;
        self.places[locked_by].shard.as_ref().expect("the shard is locked")
    }

    #[inline(always)]
    fn shard_mut(&mut self, i: usize) -> &mut Shard {
        let locked_by = self.places[i].locked_by;
        self.places[locked_by].shard.as_mut().expect("the shard is locked")
    }

    /// Makes all charges or none.
    #[inline(always)]
    pub(super) fn decide(&mut self, decision: &mut Decision) {
        if !self.take_all(decision.fill(self.now)) {
            self.undo();
            *decision = self.decide_any();
        }
    }

    /// Makes the charges as long as [`Shard::take`] can, and returns whether it made all.
    #[inline(always)]
    fn take_all(&mut self, outcomes: &mut SmallVec<[(RuleName, Outcome); 4]>) -> bool {
        // With many keys, each slot is in no cache. All of them are read first, so that one does not wait for
        // the other.
        let read_ahead = |i| self.shard(i).read_ahead(self.places[i].tag);
        black_box((0..self.places.len()).map(read_ahead).fold(0, |read, tag| read ^ tag));
        for i in 0..self.places.len() {
            let (tag, charge, now) = (self.places[i].tag, &self.charges[i], self.now);
            let Some((outcome, undo)) = self.shard_mut(i).take(tag, charge, now) else {
                return false;
            };
            self.places[i].undo = Some(undo);
            outcomes.push((charge.rule, outcome));
        }
        true
    }

    /// Takes back charges that nobody has seen, the last one first.
    #[cold]
    fn undo(&mut self) {
        for i in (0..self.places.len()).rev() {
            if let Some(undo) = self.places[i].undo.take() {
                self.shard_mut(i).undo(undo);
            }
        }
    }

    #[inline(never)]
    fn decide_any(&mut self) -> Decision {
        // Peek first: a charge could be taken back, but not the key that it evicted.
        let peeked = self.peek();
        let mut decision = Decision::new(self.now);
        let own: Vec<u64> = self.places.iter().map(|place| place.tag).collect();
        for (i, (_, outcome)) in peeked.outcomes().enumerate() {
            let (tag, charge, now) = (self.places[i].tag, &self.charges[i], self.now);
            if peeked.is_admitted() {
                decision.push(charge.rule, self.shard_mut(i).charge(tag, charge, &own, now));
            } else {
                // Nothing is charged; but a wait is exact only if what it was computed from is remembered.
                self.shard_mut(i).settle(tag, charge.quota, !outcome.is_admitted(), now);
            }
        }
        if peeked.is_admitted() { decision } else { peeked }
    }

    /// What [`decide`](Self::decide) would answer.
    pub(super) fn peek(&self) -> Decision {
        let mut decision = Decision::new(self.now);
        for (i, charge) in self.charges.iter().enumerate() {
            decision.push(charge.rule, self.peek_one(i));
        }
        decision
    }

    fn peek_one(&self, i: usize) -> Outcome {
        let (tag, charge) = (self.places[i].tag, &self.charges[i]);
        let places = self.places[..i].iter().zip(self.charges);
        let mut earlier = places.filter(|(place, _)| place.tag == tag).map(|(_, charge)| charge).peekable();
        if earlier.peek().is_none() {
            return self.shard(i).peek(tag, charge, self.now);
        }
        peek_after(&self.shard(i).counter(tag, charge.quota), earlier, charge, self.now)
    }
}
