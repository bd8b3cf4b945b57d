//! The shards of a request with several charges.

use smallvec::SmallVec;

use super::MemoryStore;
use super::lock::Guard;
use super::shard::Shard;
use crate::algorithm::peek_after;
use crate::{Charge, Clock, Decision, Outcome, Timestamp};

/// The shards that one request needs, locked in the order of their numbers, so that two requests never wait
/// for each other.
pub(super) struct Locked<'a> {
    shards: SmallVec<[Guard<'a, Shard>; 4]>,
    /// For each charge its hash, and the index of its shard in `shards`.
    tags: SmallVec<[(u64, usize); 4]>,
}

impl<'a> Locked<'a> {
    pub(super) fn new<C: Clock>(store: &'a MemoryStore<C>, charges: &[Charge<'_>]) -> Self {
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

    /// Records that these shards are used at this time, which was read after they were locked.
    pub(super) fn is_at(&mut self, now: Timestamp) {
        self.shards.iter_mut().for_each(|shard| shard.is_at(now));
    }

    /// Whether an earlier charge of the request is on the same key.
    fn is_repeated(&self, i: usize) -> bool {
        self.tags[..i].iter().any(|(tag, _)| *tag == self.tags[i].0)
    }

    fn peek_one(&self, i: usize, charges: &[Charge<'_>], now: Timestamp) -> Outcome {
        let (tag, at) = self.tags[i];
        if !self.is_repeated(i) {
            return self.shards[at].peek(tag, &charges[i], now);
        }
        let earlier = self.tags[..i].iter().zip(charges).filter(|((earlier, _), _)| *earlier == tag);
        let counter = self.shards[at].counter(tag, charges[i].quota);
        peek_after(&counter, earlier.map(|(_, charge)| charge), &charges[i], now)
    }

    pub(super) fn admit(&self, charges: &[Charge<'_>], now: Timestamp) -> bool {
        charges.iter().enumerate().all(|(i, charge)| {
            let (tag, at) = self.tags[i];
            if self.is_repeated(i) {
                self.peek_one(i, charges, now).is_admitted()
            } else {
                self.shards[at].admits(tag, charge, now)
            }
        })
    }

    pub(super) fn peek(&self, charges: &[Charge<'_>], now: Timestamp) -> Decision {
        let mut decision = Decision::new(now);
        for (i, charge) in charges.iter().enumerate() {
            decision.push(charge.rule, self.peek_one(i, charges, now));
        }
        decision
    }

    pub(super) fn charge(&mut self, charges: &[Charge<'_>], now: Timestamp) -> Decision {
        let mut decision = Decision::new(now);
        for ((tag, at), charge) in self.tags.iter().zip(charges) {
            let shard = &mut self.shards[*at];
            let home = shard.home(*tag);
            let outcome = match shard.charge_quickly(*tag, home, charge, now) {
                Ok(outcome) => outcome,
                Err(at) => shard.charge(at, *tag, charge, &self.tags, now),
            };
            decision.push(charge.rule, outcome);
        }
        decision
    }

    /// Charges nothing; but what was announced holds only if it is remembered, see [`Shard::settle`].
    #[cold]
    pub(super) fn settle(&mut self, charges: &[Charge<'_>], denied: &Decision, now: Timestamp) {
        for (((tag, at), charge), (_, outcome)) in self.tags.iter().zip(charges).zip(denied.outcomes()) {
            self.shards[*at].settle(*tag, charge.quota, !outcome.is_admitted(), now);
        }
    }
}
