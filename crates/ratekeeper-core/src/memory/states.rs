//! The states that slots refer to.

use slab::Slab;

use super::quotas::Quotas;
use super::slot::{Held, Packed};
use crate::algorithm::{Count, Counted, Counter, State};
use crate::{Quota, Timestamp};

/// The quotas that states were counted under, and the states that do not fit into a slot.
#[derive(Debug, Default)]
pub(super) struct States {
    pub(super) quotas: Quotas,
    /// Logs, and sliding windows with very large counts.
    elsewhere: Slab<State>,
    /// The states of keys that have a previous one: the current, and the previous.
    pairs: Slab<[Held; 2]>,
}

impl States {
    /// Whether a key was counted under this quota, and no other.
    #[inline]
    pub(super) fn is_under(&self, held: &Held, quota: &Quota) -> bool {
        held.as_pair().is_none() && self.quotas.get(held.number()).counts_like(quota)
    }

    /// Reads one state.
    pub(super) fn read<R>(&self, held: &Held, read: impl FnOnce(&dyn Count, &Quota) -> R) -> R {
        let quota = self.quotas.get(held.number());
        match held.packed.unpack(quota) {
            Some(state) => read(state.get(), quota),
            None => read(self.elsewhere[held.packed.narrow as usize].get(), quota),
        }
    }

    /// Changes one state.
    pub(super) fn update<R>(
        &mut self,
        held: &mut Held,
        update: impl FnOnce(&mut dyn Count, &Quota) -> R,
    ) -> R {
        let quota = self.quotas.get(held.number());
        let Some(mut state) = held.packed.unpack(quota) else {
            return update(self.elsewhere[held.packed.narrow as usize].get_mut(), quota);
        };
        let result = update(state.get_mut(), quota);
        held.packed = self.pack(state);
        result
    }

    /// Reads each state of a key, the current one first.
    pub(super) fn each<'a>(&'a self, held: &'a Held) -> &'a [Held] {
        match held.as_pair() {
            Some(at) => &self.pairs[at],
            None => std::slice::from_ref(held),
        }
    }

    /// Remembers in each state of a key that the clock was set back.
    pub(super) fn settle(&mut self, held: &mut Held, now: Timestamp) {
        let Some(at) = held.as_pair() else {
            return self.update(held, |state, quota| state.settle(quota, now));
        };
        let mut pair = self.pairs[at];
        for held in &mut pair {
            self.update(held, |state, quota| state.settle(quota, now));
        }
        self.pairs[at] = pair;
    }

    /// A copy of a key's counter.
    pub(super) fn counter(&self, held: &Held) -> Counter {
        let mut states = self.each(held).iter().map(|held| {
            let quota = *self.quotas.get(held.number());
            let elsewhere = || self.elsewhere[held.packed.narrow as usize].clone();
            Counted { quota, state: held.packed.unpack(&quota).unwrap_or_else(elsewhere) }
        });
        let current = states.next().expect("a key has a state");
        Counter { current, previous: states.next().map(Box::new) }
    }

    /// Takes a key's counter out.
    pub(super) fn take(&mut self, held: &Held) -> Counter {
        let pair = held.as_pair().map(|at| self.pairs.remove(at));
        let current = self.take_one(pair.as_ref().map_or(held, |[current, _]| current));
        let previous = pair.map(|[_, previous]| Box::new(self.take_one(&previous)));
        Counter { current, previous }
    }

    fn take_one(&mut self, held: &Held) -> Counted {
        let quota = *self.quotas.get(held.number());
        self.quotas.release(held.number());
        let elsewhere = || self.elsewhere.remove(held.packed.narrow as usize);
        Counted { quota, state: held.packed.unpack(&quota).unwrap_or_else(elsewhere) }
    }

    /// Puts a key's counter in.
    pub(super) fn put(&mut self, counter: Counter) -> Held {
        let current = self.put_one(counter.current);
        match counter.previous {
            None => current,
            Some(previous) => {
                let previous = self.put_one(*previous);
                Held::pair(self.pairs.insert([current, previous]))
            }
        }
    }

    fn put_one(&mut self, Counted { quota, state }: Counted) -> Held {
        Held::new(self.pack(state), self.quotas.acquire(&quota))
    }

    fn pack(&mut self, state: State) -> Packed {
        match Packed::pack(&state) {
            Some(packed) => packed,
            None => Packed::elsewhere(self.elsewhere.insert(state)),
        }
    }

    /// Frees memory that is not needed any more.
    pub(super) fn shrink(&mut self) {
        self.quotas.drop_unused();
        self.elsewhere.shrink_to_fit();
        self.pairs.shrink_to_fit();
    }
}
