//! The rules in force, which can be swapped at any time.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, Guard};

use crate::rule::Rules;

/// The rules in force.
///
/// Most limiters never have a set other than their first. The first set is kept for as long as the limiter,
/// so it can be read in place. Only after a swap do readers have to register the set that they hold, so that
/// it is not freed meanwhile.
#[derive(Debug)]
pub(super) struct InForce {
    first: Arc<Rules>,
    /// Set by the first swap.
    swapped: OnceLock<ArcSwap<Rules>>,
}

/// The set that was in force when it was loaded.
pub(crate) enum Current<'a> {
    First(&'a Arc<Rules>),
    Swapped(Guard<Arc<Rules>>),
}

impl InForce {
    pub(super) const fn new(rules: Arc<Rules>) -> Self {
        Self { first: rules, swapped: OnceLock::new() }
    }

    #[inline(always)]
    pub(super) fn load(&self) -> Current<'_> {
        match self.swapped.get() {
            None => Current::First(&self.first),
            Some(swapped) => Current::Swapped(swapped.load()),
        }
    }

    /// Puts other rules in force, and returns the previous ones.
    pub(super) fn swap(&self, rules: Arc<Rules>) -> Arc<Rules> {
        self.swapped.get_or_init(|| ArcSwap::new(Arc::clone(&self.first))).swap(rules)
    }
}

impl Deref for Current<'_> {
    type Target = Arc<Rules>;

    #[inline(always)]
    fn deref(&self) -> &Arc<Rules> {
        match self {
            Self::First(rules) => rules,
            Self::Swapped(rules) => rules,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread;

    use ratekeeper_core::Quota;

    use super::*;
    use crate::rule::Rule;

    fn rules(name: &str) -> Arc<Rules> {
        Arc::new(Rules::new(vec![Rule::new(name, Quota::per_second(1))]).unwrap())
    }

    fn name(rules: &Rules) -> &'static str {
        rules.rule(0).name.as_str()
    }

    #[test]
    fn a_swap_gives_back_what_was_in_force_and_is_seen_at_once() {
        let in_force = InForce::new(rules("first"));
        assert_eq!(name(&in_force.load()), "first");
        assert_eq!(name(&in_force.swap(rules("second"))), "first");
        assert_eq!(name(&in_force.load()), "second");
        let before = in_force.load();
        assert_eq!(name(&in_force.swap(rules("third"))), "second");
        assert_eq!((name(&before), name(&in_force.load())), ("second", "third"));
    }

    #[test]
    fn what_is_held_across_the_first_swap_stays_what_it_was() {
        let in_force = InForce::new(rules("first"));
        let before = in_force.load();
        drop(in_force.swap(rules("second")));
        assert_eq!(name(&before), "first");
    }

    #[test]
    fn of_several_first_swaps_at_once_each_gives_back_another_set() {
        let in_force = InForce::new(rules("first"));
        let given_back: Vec<&str> = thread::scope(|scope| {
            let swaps = ["a", "b", "c", "d"].map(|set| scope.spawn(|| name(&in_force.swap(rules(set)))));
            swaps.into_iter().map(|swap| swap.join().unwrap()).collect()
        });
        let mut sets: HashSet<&str> = given_back.into_iter().collect();
        sets.insert(name(&in_force.load()));
        assert_eq!(sets, HashSet::from(["first", "a", "b", "c", "d"]));
    }
}
