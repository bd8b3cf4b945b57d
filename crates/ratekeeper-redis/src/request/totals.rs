//! What the charges of one request add up to.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use smallvec::SmallVec;

use crate::name::ByHash;

/// Up to this many charges are compared one by one.
pub(crate) const FEW: usize = 8;

/// What a request charges each of its counters, up to the charge that is looked at.
///
/// A request of many charges has the sums in a table: if each charge were compared with all before it, ten
/// thousand of them would take a hundred times as long as a thousand.
#[derive(Debug)]
pub(crate) struct Totals {
    few: SmallVec<[(u64, u64); FEW]>,
    many: Option<HashMap<u64, u64, ByHash>>,
}

impl Totals {
    /// For a request with this many charges.
    #[inline]
    pub(crate) fn new(charges: usize) -> Self {
        let table = || HashMap::with_capacity_and_hasher(charges, ByHash::default());
        Self { few: SmallVec::new(), many: (charges > FEW).then(table) }
    }

    /// Adds a charge to the counter with this number, and returns the sum of the earlier ones, if there are
    /// any.
    #[inline]
    pub(crate) fn add(&mut self, counter: u64, cost: u32) -> Option<u64> {
        let cost = u64::from(cost);
        let total = match &mut self.many {
            Some(many) => match many.entry(counter) {
                Entry::Occupied(total) => Some(total.into_mut()),
                Entry::Vacant(new) => {
                    new.insert(cost);
                    None
                }
            },
            None => {
                let known = self.few.iter().position(|(known, _)| *known == counter);
                if known.is_none() {
                    self.few.push((counter, cost));
                }
                known.map(|known| &mut self.few[known].1)
            }
        };
        total.map(|total| std::mem::replace(total, *total + cost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_many_charges_add_up_alike() {
        for charges in [1, 2, FEW, FEW + 1, 100] {
            let mut totals = Totals::new(charges);
            for i in 0..charges as u64 {
                let earlier = (0..i).filter(|earlier| earlier % 3 == i % 3).collect::<Vec<_>>();
                let expected = (!earlier.is_empty()).then(|| earlier.iter().sum());
                assert_eq!(totals.add(i % 3, i as u32), expected, "{i} of {charges}");
            }
        }
    }
}
