//! Groups requests into calls.

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicU32, Ordering};

use smallvec::{SmallVec, smallvec};

use crate::batch::call::{Call, Few, Group, Run};
use crate::batch::encode::Term;
use crate::name::{ByHash, Counted};
use crate::request::Charges;

/// How many requests a group holds: their number takes two bytes.
const GROUP: usize = u16::MAX as usize;
/// How many terms a call holds, unless a single request has more: each new one is compared with all of them.
/// Those of a single request that are beyond this are in a table.
const TERMS: usize = 255;

impl Call {
    /// Groups requests into calls of at most `max_counters` counters each. `peek`: they charge nothing.
    ///
    /// All of them must be allowed in one call: on a cluster, their counters must be in one slot.
    pub(crate) fn gather(requests: &[&Charges], max_counters: usize, peek: bool) -> Few<(usize, Self)> {
        let mut calls = Few::new();
        let count = requests.len();
        let mut builder = Builder::new(count);
        for charges in requests {
            let full = builder.call.named_by.len() + charges.len() > max_counters
                || builder.call.terms.len() + charges.len() > TERMS;
            if full && !builder.call.places.is_empty() {
                calls.push(mem::replace(&mut builder, Builder::new(count)).finish());
            }
            builder.add(charges, peek);
        }
        if !builder.call.places.is_empty() {
            calls.push(builder.finish());
        }
        calls
    }
}

#[derive(Debug)]
struct Builder<'a> {
    call: Call,
    counters: Counters<'a>,
    /// For each counter, the latest group whose first charge goes to it.
    last: SmallVec<[Option<usize>; FEW]>,
    /// For each counter, how many groups charge it.
    groups: SmallVec<[usize; FEW]>,
    /// The terms after the first [`TERMS`], each with its number.
    terms: HashMap<Term, u16>,
}

/// Up to this many counters are compared one by one.
const FEW: usize = 4;

/// The counters named so far, each with its number.
#[derive(Debug)]
struct Counters<'a> {
    first: SmallVec<[&'a Counted; FEW]>,
    others: HashMap<&'a Counted, usize, ByHash>,
}

impl<'a> Counters<'a> {
    /// With room for about `count` counters.
    fn with_capacity(count: usize) -> Self {
        let others = HashMap::with_capacity_and_hasher(count.saturating_sub(FEW), ByHash::default());
        Self { first: SmallVec::new(), others }
    }

    /// The number of a counter, and whether it is new.
    fn number(&mut self, counter: &'a Counted) -> (usize, bool) {
        if let Some(number) = self.first.iter().position(|first| *first == counter) {
            return (number, false);
        }
        if self.first.len() < FEW {
            self.first.push(counter);
            return (self.first.len() - 1, true);
        }
        let next = FEW + self.others.len();
        let number = *self.others.entry(counter).or_insert(next);
        (number, number == next)
    }
}

impl<'a> Builder<'a> {
    fn new(requests: usize) -> Self {
        let call = Call {
            places: Few::with_capacity(requests),
            named_by: Few::with_capacity(requests),
            groups: Few::with_capacity(requests),
            ..Call::default()
        };
        let counters = Counters::with_capacity(requests);
        Self {
            call,
            counters,
            last: SmallVec::with_capacity(requests),
            groups: SmallVec::with_capacity(requests),
            terms: HashMap::new(),
        }
    }

    fn add(&mut self, charges: &'a Charges, peek: bool) {
        let request = self.call.places.len();
        let mut places = SmallVec::new();
        let mut own: SmallVec<[(u16, u16); 2]> = SmallVec::new();
        for (i, charge) in charges.iter().enumerate() {
            let (place, is_new) = self.counters.number(&charge.counter);
            if is_new {
                self.call.named_by.push((request, i));
                self.last.push(None);
                self.groups.push(0);
            }
            places.push(place);
            if !peek {
                let term = self.find_term(Term::of(charge));
                own.push((place as u16, term));
            }
        }
        self.call.places.push(places);
        let [(first, _), ..] = *own else { return };
        let last = &mut self.last[usize::from(first)];
        if let Some(group) = *last {
            let group = &mut self.call.groups[group];
            if group.charges == own && group.members.len() < GROUP {
                return group.members.push(request);
            }
        }
        *last = Some(self.call.groups.len());
        for (place, _) in &own {
            self.groups[usize::from(*place)] += 1;
        }
        self.call.groups.push(Group { charges: own, members: smallvec![request] });
    }

    fn find_term(&mut self, term: Term) -> u16 {
        let terms = &mut self.call.terms;
        if let Some(found) = terms.iter().take(TERMS).position(|known| *known == term) {
            return found as u16;
        }
        let next = terms.len() as u16;
        // Only a request that has more terms by itself gets this far.
        let found = if terms.len() < TERMS { next } else { *self.terms.entry(term).or_insert(next) };
        if found == next {
            terms.push(term);
        }
        found
    }

    /// Finds the runs: groups of one charge, to counters that nothing else charges. Renumbers the counters,
    /// so that those of one run are consecutive.
    fn finish(self) -> (usize, Call) {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let Self { mut call, groups: charged_by, .. } = self;
        let mut groups = mem::take(&mut call.groups);
        // The term, if it belongs into a run. All others come last, in their order.
        let order = |group: &Group| match *group.charges {
            [(place, term)] if charged_by[usize::from(place)] == 1 => u32::from(term),
            _ => u32::MAX,
        };
        // Usually all have one charge, and the same term.
        if !groups.is_sorted_by_key(order) {
            groups.sort_by_key(order);
        }
        let mut numbers = Numbers::new(call.named_by.len());
        while let Some(group) = groups.get(call.in_runs).filter(|group| order(group) < u32::MAX) {
            let (from, first, term) = (call.in_runs, numbers.given(), group.charges[0].1);
            for group in groups[from..].iter().take_while(|other| order(other) == u32::from(term)) {
                numbers.give(group.charges[0].0.into());
                call.in_runs += 1;
            }
            call.runs.push(Run { first, term, groups: from..call.in_runs });
        }
        call.groups = groups;
        numbers.apply(&mut call);
        call.number = NEXT.fetch_add(1, Ordering::Relaxed);
        (call.places.len(), call)
    }
}

/// New numbers for counters.
struct Numbers {
    old: SmallVec<[usize; FEW]>,
    new: SmallVec<[Option<usize>; FEW]>,
}

impl Numbers {
    fn new(count: usize) -> Self {
        Self { old: SmallVec::with_capacity(count), new: smallvec![None; count] }
    }

    fn given(&self) -> usize {
        self.old.len()
    }

    fn give(&mut self, old: usize) -> usize {
        if let Some(new) = self.new[old] {
            return new;
        }
        self.new[old] = Some(self.old.len());
        self.old.push(old);
        self.old.len() - 1
    }

    fn apply(mut self, call: &mut Call) {
        if self.old.iter().enumerate().all(|(new, old)| new == *old) {
            return;
        }
        for place in call.places.iter_mut().flatten() {
            *place = self.give(*place);
        }
        for (place, _) in call.groups.iter_mut().flat_map(|group| &mut group.charges) {
            *place = self.give(usize::from(*place)) as u16;
        }
        call.named_by = self.old.iter().map(|old| call.named_by[*old]).collect();
    }
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::{Charge, Key, Quota, RuleName};

    use super::*;
    use crate::name::Names;
    use crate::request::OwnCharge;

    #[test]
    fn however_many_ask_about_one_counter_they_are_one_group() {
        let (key, quota) = (Key::from("key"), Quota::per_minute(10));
        let charge = Charge::new(RuleName::new("rule").unwrap(), &key, &quota);
        let request = vec![OwnCharge::new(&charge, &Names::new("test", false))];
        let calls = Call::gather(&vec![&request; 1_000], 64, false);
        let [(1_000, call)] = &*calls else { panic!("{calls:?}") };
        assert_eq!((call.named_by.len(), call.groups.len(), call.in_runs), (1, 1, 1));
        assert_eq!(call.groups[0].members.len(), 1_000);
    }

    /// The first few are compared one by one, and the others are in a table.
    #[test]
    fn each_counter_is_named_once_however_many_there_are() {
        let (names, quota) = (Names::new("test", false), Quota::per_minute(10));
        let request = |key: u64| {
            let key = Key::from(key);
            vec![OwnCharge::new(&Charge::new(RuleName::new("rule").unwrap(), &key, &quota), &names)]
        };
        for count in [1, FEW, FEW + 1, 5 * FEW] {
            let requests: Vec<_> = (0..3 * count).map(|i| request((i % count) as u64)).collect();
            let calls = Call::gather(&requests.iter().collect::<Vec<_>>(), 64, false);
            let [(asked, call)] = &*calls else { panic!("{calls:?}") };
            assert_eq!((*asked, call.named_by.len(), call.groups.len()), (3 * count, count, count));
            for (i, places) in call.places.iter().enumerate() {
                assert_eq!(call.named_by[places[0]].0, i % count, "request {i} of {count}");
            }
        }
    }

    /// More than are compared one by one: beyond that they are in tables.
    #[test]
    fn equal_terms_and_counters_of_a_large_request_are_named_once() {
        let names = Names::new("test", false);
        let own = |key: u32, limit: u32| {
            let (key, quota) = (Key::from(u64::from(key)), Quota::per_minute(limit));
            OwnCharge::new(&Charge::new(RuleName::new("rule").unwrap(), &key, &quota), &names)
        };
        type Make<'a> = &'a dyn Fn(u32) -> OwnCharge;
        let [apart, unequal, twice]: [Make<'_>; 3] =
            [&|i| own(i, 10), &|i| own(i, 10 + i), &|i| own(i, 10 + i % 1_000)];
        for (make, terms) in [(apart, 1), (unequal, 2_000), (twice, 1_000)] {
            let request: Charges = (0..2_000).map(make).collect();
            let calls = Call::gather(&[&request], 256, false);
            let [(_, call)] = &calls[..] else { panic!("{} calls", calls.len()) };
            assert_eq!((call.named_by.len(), call.terms.len()), (2_000, terms));
            let asked: Vec<u16> =
                call.groups.iter().flat_map(|group| &group.charges).map(|(_, term)| *term).collect();
            for (i, term) in asked.into_iter().enumerate() {
                assert_eq!(usize::from(term), i % terms, "each is asked under its own");
            }
        }
    }
}
