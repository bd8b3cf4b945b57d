//! A few charges on known keys, which is what most requests with several rules make.

use super::MemoryStore;
use super::lock::Guard;
use super::shard::Shard;
use super::slot::Slot;
use crate::{Charge, Clock, Decision, Outcome};

/// Makes the charges if all of them fit, each can be made by [`Shard::charge_known`], and each key is in its
/// own shard. Otherwise does nothing.
#[inline]
pub(super) fn charge<const N: usize, C: Clock>(
    store: &MemoryStore<C>,
    charges: &[Charge<'_>; N],
) -> Option<Decision> {
    let mut tags = [0; N];
    for i in 0..N {
        tags[i] = store.tag(charges[i].rule, &charges[i].key);
    }
    let homes = tags.map(|tag| store.ask(tag).1);
    let known = store.inner.clock.now();
    // The shards are locked in the order of their numbers, so that two requests never wait for each other.
    let order = in_order(&tags, |tag| store.index(tag))?;
    let mut shards: [Option<Guard<'_, Shard>>; N] = [const { None }; N];
    for i in 0..N {
        shards[i] = Some(store.shard(tags[order[i]]));
    }
    let (mut found, mut read_again) = ([0; N], false);
    for i in 0..N {
        let shard = shards[i].as_deref()?;
        found[i] = shard.seek(tags[order[i]], homes[order[i]]);
        read_again |= shard.may_be_ahead_of(known);
    }
    let now = if read_again { store.time() } else { known };
    let mut told = [(charges[0].rule, Outcome::NOTHING); N];
    let mut before = [Slot::FREE.packed; N];
    for i in 0..N {
        let (shard, own) = (shards[i].as_deref_mut()?, order[i]);
        shard.is_at(now);
        let Some((was, outcome)) = shard.charge_known(found[i], tags[own], &charges[own], now) else {
            let made = shards.iter_mut().flatten().zip(found).zip(before).take(i);
            made.for_each(|((shard, found), before)| shard.put_back(found, before));
            return None;
        };
        (before[i], told[own]) = (was, (charges[own].rule, outcome));
    }
    drop(shards);
    store.sweep_if_due(now);
    Some(Decision::several(now, &told))
}

/// The places of the tags, ordered by the numbers of their shards; `None` if two are in the same shard.
#[inline(always)]
fn in_order<const N: usize>(tags: &[u64; N], number: impl Fn(u64) -> usize) -> Option<[usize; N]> {
    // Each number carries its place in the two lowest bits, which are enough.
    const { assert!(N <= 4) };
    let mut order = [0; N];
    for i in 0..N {
        order[i] = number(tags[i]) << 2 | i;
    }
    // Which one is smaller cannot be predicted, so no branch depends on it.
    for end in (1..N).rev() {
        for i in 0..end {
            (order[i], order[i + 1]) = (order[i].min(order[i + 1]), order[i].max(order[i + 1]));
        }
    }
    for i in 1..N {
        if order[i - 1] >> 2 == order[i] >> 2 {
            return None;
        }
    }
    Some(order.map(|place| place & 3))
}

#[cfg(test)]
mod tests {
    use super::in_order;

    #[test]
    fn shards_are_locked_by_their_numbers_and_none_twice() {
        let number = |tag: u64| tag as usize % 10;
        let of_three = |tags| in_order(&tags, number);
        for (tags, order) in [
            ([1, 2, 3], [0, 1, 2]),
            ([1, 3, 2], [0, 2, 1]),
            ([2, 1, 3], [1, 0, 2]),
            ([2, 3, 1], [2, 0, 1]),
            ([3, 1, 2], [1, 2, 0]),
            ([3, 2, 1], [2, 1, 0]),
        ] {
            assert_eq!(of_three(tags), Some(order), "{tags:?}");
        }
        for tags in [[1, 1, 2], [1, 2, 1], [2, 1, 1], [1, 11, 21]] {
            assert_eq!(of_three(tags), None, "{tags:?}");
        }
        assert_eq!((in_order(&[5, 4], number), in_order(&[4, 14], number)), (Some([1, 0]), None));
    }
}
