//! The shards of a request with several charges.

use smallvec::SmallVec;

use super::MemoryStore;
use super::lock::Guard;
use super::shard::Shard;
use crate::algorithm::peek_sum;
use crate::{Charge, Clock, Decision, Timestamp};

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

    /// The charges, each with the cost that has to fit: what this request charges the same key earlier counts
    /// as well.
    fn costs<'c>(
        &self,
        charges: &'c [Charge<'c>],
    ) -> impl Iterator<Item = (u64, &Shard, &'c Charge<'c>, u64)> {
        charges.iter().zip(&self.tags).enumerate().map(move |(i, (charge, (tag, at)))| {
            let earlier = self.tags[..i].iter().zip(charges).filter(|((earlier, _), _)| earlier == tag);
            let cost = earlier.fold(charge.cost.into(), |sum, (_, earlier)| sum + u64::from(earlier.cost));
            (*tag, &*self.shards[*at], charge, cost)
        })
    }

    pub(super) fn admit(&self, charges: &[Charge<'_>], now: Timestamp) -> bool {
        self.costs(charges).all(|(tag, shard, charge, cost)| {
            u32::try_from(cost).is_ok_and(|cost| shard.admits(tag, charge, cost, now))
        })
    }

    pub(super) fn peek(&self, charges: &[Charge<'_>], now: Timestamp) -> Decision {
        let mut decision = Decision::new(now);
        for (tag, shard, charge, cost) in self.costs(charges) {
            decision.push(charge.rule, peek_sum(cost, |cost| shard.peek(tag, charge, cost, now)));
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
    pub(super) fn settle(&mut self, charges: &[Charge<'_>], now: Timestamp) {
        for ((tag, at), charge) in self.tags.iter().zip(charges) {
            self.shards[*at].settle(*tag, charge.quota, now);
        }
    }
}
