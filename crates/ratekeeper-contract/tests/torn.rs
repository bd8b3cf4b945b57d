//! The suite detects stores that read, decide and then write, and so lose what others do in between.

use std::collections::HashMap;
use std::future::{Future, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use ratekeeper_contract::{Harness, at_once, block_on};
use ratekeeper_core::algorithm::{self, Counter};
use ratekeeper_core::{
    Answer, Charge, Clock, Debit, Decision, Key, KeyRef, ManualClock, Refund, RuleName, Store, Timestamp,
};

type Counters = HashMap<(RuleName, Key), Counter>;

/// The operation in which the store releases its lock between reading and writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Torn {
    Nowhere,
    Charging,
    GivingBack,
    TakingWhatIsDue,
}

#[derive(Clone)]
struct TornStore {
    counters: Arc<Mutex<Counters>>,
    clock: ManualClock,
    torn: Torn,
}

impl TornStore {
    fn counters(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().expect("nobody panics")
    }

    /// Changes a counter, if it exists or `new` is given.
    fn change(
        &self,
        at: Torn,
        charge: (RuleName, KeyRef<'_>),
        new: Option<Counter>,
        change: impl FnOnce(&mut Counter),
    ) {
        let name = (charge.0, charge.1.to_key());
        let mut counters = self.counters();
        let Some(mut counter) = counters.get(&name).cloned().or(new) else { return };
        if self.torn == at {
            drop(counters);
            thread::yield_now();
            counters = self.counters();
        }
        change(&mut counter);
        counters.insert(name, counter);
    }
}

impl Store for TornStore {
    fn charge(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        let name = |charge: &Charge<'_>| (charge.rule, charge.key.to_key());
        let mut counters = self.counters();
        let read = |charge: &Charge<'_>| {
            counters.get(&name(charge)).cloned().unwrap_or_else(|| Counter::new(charge.quota))
        };
        let mut own: Vec<_> = charges.iter().map(read).collect();
        if self.torn == Torn::Charging {
            drop(counters);
            thread::yield_now();
            counters = self.counters();
        }
        let places: Vec<_> = (0..charges.len()).collect();
        let decision = algorithm::decide(&mut own, &places, charges, self.clock.now());
        counters.extend(charges.iter().map(name).zip(own));
        Answer::Now(Ok(decision))
    }

    fn peek(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        let aside = Self { counters: Arc::new(Mutex::new(self.counters().clone())), ..self.clone() };
        aside.charge(&charges.iter().map(|charge| charge.cost(0)).collect::<Vec<_>>())
    }

    fn refund(&self, refunds: &[Refund<'_>]) -> Answer<()> {
        let now = self.clock.now();
        for refund in refunds {
            let give_back = |counter: &mut Counter| counter.refund(refund.cost, refund.receipt, now);
            self.change(Torn::GivingBack, (refund.rule, refund.key), None, give_back);
        }
        Answer::Now(Ok(()))
    }

    fn debit(&self, debits: &[Debit<'_>]) -> Answer<()> {
        let now = self.clock.now();
        for Debit { charge, receipt, .. } in debits {
            let new = Counter::new(charge.quota);
            let take = |counter: &mut Counter| counter.debit(charge.quota, charge.cost, *receipt, now);
            self.change(Torn::TakingWhatIsDue, (charge.rule, charge.key), Some(new), take);
        }
        Answer::Now(Ok(()))
    }

    fn reset(&self, rule: RuleName, key: KeyRef<'_>) -> Answer<()> {
        self.counters().remove(&(rule, key.to_key()));
        Answer::Now(Ok(()))
    }
}

struct TornHarness(TornStore);

impl TornHarness {
    fn new(torn: Torn) -> Self {
        let clock = ManualClock::new(Timestamp::UNIX_EPOCH);
        Self(TornStore { counters: Arc::default(), clock, torn })
    }
}

impl Harness for TornHarness {
    type Store = TornStore;

    fn store(&self) -> TornStore {
        self.0.clone()
    }

    fn now(&self) -> impl Future<Output = Timestamp> + Send {
        ready(self.0.clock.now())
    }

    fn set(&self, now: Timestamp) -> impl Future<Output = ()> + Send {
        self.0.clock.set(now);
        ready(())
    }
}

fn fails(case: impl Future<Output = ()>) -> bool {
    catch_unwind(AssertUnwindSafe(|| block_on(case))).is_err()
}

#[test]
fn a_store_that_is_torn_nowhere_passes() {
    let whole = || TornHarness::new(Torn::Nowhere);
    block_on(at_once::two_hundred_at_once_admit_exactly_the_limit(whole()));
    block_on(at_once::mixed_costs_at_once_never_go_above_the_limit(whole()));
    block_on(at_once::several_rules_at_once_are_charged_for_those_admitted(whole()));
    block_on(at_once::what_is_given_back_and_taken_at_once_adds_up(whole()));
}

#[test]
fn charges_that_are_torn_are_found() {
    let torn = || TornHarness::new(Torn::Charging);
    assert!(fails(at_once::two_hundred_at_once_admit_exactly_the_limit(torn())));
    assert!(fails(at_once::mixed_costs_at_once_never_go_above_the_limit(torn())));
    assert!(fails(at_once::several_rules_at_once_are_charged_for_those_admitted(torn())));
    assert!(fails(at_once::what_is_given_back_and_taken_at_once_adds_up(torn())));
}

#[test]
fn refunds_that_are_torn_are_found() {
    assert!(fails(at_once::what_is_given_back_and_taken_at_once_adds_up(TornHarness::new(Torn::GivingBack))));
}

#[test]
fn debits_that_are_torn_are_found() {
    let torn = TornHarness::new(Torn::TakingWhatIsDue);
    assert!(fails(at_once::what_is_given_back_and_taken_at_once_adds_up(torn)));
}
