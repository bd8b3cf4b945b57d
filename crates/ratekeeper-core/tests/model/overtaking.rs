//! Requests that read the clock first and reach the store last.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ratekeeper_core::{Charge, Clock, Debit, Key, MemoryStore, Quota, RuleName, Store, Timestamp};

/// What happens between the moment the time is read and the moment it is returned.
type Meanwhile = Box<dyn FnOnce() + Send>;

/// A clock that returns given times, one per read and the last one from then on, and runs something in
/// between.
#[derive(Clone, Default)]
struct Script(Arc<Mutex<Times>>);

#[derive(Default)]
struct Times {
    next: VecDeque<(u64, Option<Meanwhile>)>,
    last: u64,
}

impl Script {
    fn then(&self, micros: u64) {
        self.0.lock().unwrap().next.push_back((micros, None));
    }

    fn then_while(&self, micros: u64, meanwhile: impl FnOnce() + Send + 'static) {
        self.0.lock().unwrap().next.push_back((micros, Some(Box::new(meanwhile))));
    }
}

impl Clock for Script {
    fn now(&self) -> Timestamp {
        let (micros, meanwhile) = {
            let mut times = self.0.lock().unwrap();
            let next = times.next.pop_front().unwrap_or((times.last, None));
            times.last = next.0;
            next
        };
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        Timestamp::from_micros(micros)
    }
}

struct Case {
    script: Script,
    store: MemoryStore<Script>,
    rule: RuleName,
    key: Key,
    quota: Quota,
}

/// The length of a window.
const PERIOD: u64 = 10_000_000;
/// The end of one window, and the beginning of the next.
const EDGE: u64 = 100_000 * PERIOD;

impl Case {
    fn new() -> Self {
        let script = Script::default();
        let store = MemoryStore::builder().clock(script.clone()).build();
        let rule = RuleName::new("overtaking").unwrap();
        Self {
            script,
            store,
            rule,
            key: Key::from("alice"),
            quota: Quota::fixed_window(2, Duration::from_micros(PERIOD)),
        }
    }

    fn is_admitted(&self) -> bool {
        self.store.decide(&[Charge::new(self.rule, &self.key, &self.quota)]).is_admitted()
    }

    /// The same with another rule beside it.
    fn is_admitted_by_two(&self) -> bool {
        let second = RuleName::new("second").unwrap();
        let charges = [self.rule, second].map(|rule| Charge::new(rule, &self.key, &self.quota));
        self.store.decide(&charges).is_admitted()
    }

    /// A request reads the clock just before the edge of a window. Another one, `overtakes`, reads it just
    /// after the edge and is counted first. Both count in the window that has begun, and no third fits until
    /// it ends.
    fn counts_both(
        &self,
        is_admitted: impl FnOnce(&Self) -> bool,
        overtakes: impl FnOnce(&Self) + Send + 'static,
    ) {
        let other = Self { script: self.script.clone(), store: self.store.clone(), key: self.key, ..*self };
        self.script.then_while(EDGE - 1, move || overtakes(&other));
        self.script.then(EDGE + 1);
        assert!(is_admitted(self));
        assert!(!self.is_admitted(), "two in each window");
        self.script.then(EDGE + PERIOD - 1);
        assert!(!self.is_admitted(), "two in each window");
        self.script.then(EDGE + PERIOD);
        assert!(self.is_admitted(), "and in the next");
    }
}

/// If it were decided at the time it had read, the window would count as begun then, and would end too early.
#[test]
fn who_was_overtaken_counts_from_when_it_has_the_store() {
    Case::new().counts_both(Case::is_admitted, |other| assert!(other.is_admitted()));
}

#[test]
fn who_was_overtaken_with_several_rules_counts_from_then_too() {
    let case = Case::new();
    case.script.then(EDGE - 2 * PERIOD);
    assert!(case.is_admitted_by_two(), "the keys are known from here on");
    case.counts_both(Case::is_admitted_by_two, |other| assert!(other.is_admitted()));
}

#[test]
fn who_overtakes_with_several_rules_is_not_forgotten() {
    Case::new().counts_both(Case::is_admitted, |other| assert!(other.is_admitted_by_two()));
}

#[test]
fn what_is_settled_meanwhile_is_not_forgotten() {
    Case::new().counts_both(Case::is_admitted, |other| {
        let charge = Charge::new(other.rule, &other.key, &other.quota);
        drop(other.store.debit(&[Debit::new(charge)]));
    });
}

/// However much later the other one was, as on a machine that sleeps in between.
#[test]
fn who_was_overtaken_by_far_counts_from_when_it_has_the_store() {
    for minutes in [1, 10, 30, 40, 50, 70, 75, 100, 140, 1_440] {
        let case = Case::new();
        let later = EDGE + minutes * 60_000_000;
        let other = case.store.clone();
        let (rule, key, quota) = (case.rule, case.key, case.quota);
        case.script.then(EDGE - PERIOD);
        assert!(case.is_admitted());
        case.script.then_while(EDGE - 1, move || {
            assert!(other.decide(&[Charge::new(rule, &key, &quota)]).is_admitted());
        });
        case.script.then(later);
        let admitted = (0..4).filter(|_| case.is_admitted()).count();
        assert_eq!(admitted, 1, "two in the window that is {minutes} minutes later");
    }
}

/// A clock that was set back is believed.
#[test]
fn a_clock_that_was_set_back_is_not_taken_for_one_that_was_read_early() {
    let case = Case::new();
    let back = EDGE - 60_000_000;
    case.script.then(EDGE + 1);
    case.script.then(back);
    assert!(case.is_admitted());
    let decision = case.store.decide(&[Charge::new(case.rule, &case.key, &case.quota)]);
    assert_eq!(decision.at(), Timestamp::from_micros(back));
}
