//! Quotas and histories to test with.

use std::time::Duration;

use proptest::prelude::*;
use ratekeeper_core::algorithm::Counter;
use ratekeeper_core::{Algorithm, Outcome, Quota, Receipt, Timestamp, codec};

pub(crate) const MICRO: Duration = Duration::from_micros(1);
pub(crate) const START: u64 = 1_700_000_040_000_000;

/// How many cases a property is tried with, unless `PROPTEST_CASES` is set.
pub(crate) fn cases(cases: u32) -> ProptestConfig {
    let config = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_some() { config } else { ProptestConfig { cases, ..config } }
}

/// From one in thirty days to ten million a second, including rates that divide nothing evenly.
pub(crate) fn rate() -> impl Strategy<Value = (u32, Duration)> {
    let named = prop_oneof![
        Just((1, 30 * 86_400_000_000)),
        Just((3, 1_000_000)),
        Just((7, 1_000_000)),
        Just((9_999_999, 1_000_000)),
        Just((10_000_000, 1_000_000)),
        Just((100, 60_000_000)),
    ];
    let limit = prop_oneof![1_u32..20, 1_u32..10_000, 1_u32..10_000_000];
    let period = prop_oneof![1_000_u64..20_000, 1_000_u64..100_000_000, 1_000_000_u64..2_592_000_000_000];
    prop_oneof![named, (limit, period)].prop_map(|(limit, micros)| (limit, Duration::from_micros(micros)))
}

/// A rate with a limit that is small enough for histories to reach it.
pub(crate) fn small_rate() -> impl Strategy<Value = (u32, Duration)> {
    let period = prop_oneof![1_000_u64..20_000, 1_000_u64..100_000_000, 1_000_000_u64..2_592_000_000_000];
    (1_u32..40, period).prop_map(|(limit, micros)| (limit, Duration::from_micros(micros)))
}

pub(crate) fn algorithm() -> impl Strategy<Value = Algorithm> {
    proptest::sample::select(Algorithm::ALL.to_vec())
}

/// A quota of any algorithm, with its own capacity where there can be one.
pub(crate) fn small_quota() -> impl Strategy<Value = Quota> {
    (algorithm(), small_rate(), proptest::option::of(1_u32..40))
        .prop_map(|(algorithm, rate, capacity)| quota(algorithm, rate, capacity))
}

pub(crate) fn quota(algorithm: Algorithm, (limit, period): (u32, Duration), capacity: Option<u32>) -> Quota {
    match (algorithm, capacity) {
        (Algorithm::TokenBucket, None) => Quota::token_bucket(limit, period),
        (Algorithm::TokenBucket, Some(burst)) => Quota::token_bucket(limit, period).burst(burst),
        (Algorithm::FixedWindow, _) => Quota::fixed_window(limit, period),
        (Algorithm::SlidingWindow, _) => Quota::sliding_window(limit, period),
        (Algorithm::SlidingLog, _) => Quota::sliding_log(limit, period),
        (Algorithm::LeakyBucket, None) => Quota::leaky_bucket(limit, period),
        (Algorithm::LeakyBucket, Some(capacity)) => Quota::leaky_bucket(limit, period).capacity(capacity),
        (other, _) => unreachable!("{other} is new"),
    }
}

/// A charge after a pause. What both mean depends on the quota, so that for every quota something happens in
/// the histories.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// In thousandths of a full refill, and a few microseconds.
    pause: (u64, u64),
    /// In thousandths of the capacity.
    cost: u64,
}

impl Step {
    pub(crate) fn pause(&self, quota: &Quota) -> u64 {
        let refill = quota.full_refill().as_micros() as u64;
        (u128::from(refill) * u128::from(self.pause.0) / 1_000) as u64 + self.pause.1
    }

    pub(crate) fn cost(&self, quota: &Quota) -> u32 {
        (u64::from(quota.max()) * self.cost / 1_000) as u32 + u32::from(self.cost.is_multiple_of(2))
    }
}

pub(crate) fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let pause = prop_oneof![3 => Just(0_u64), 4 => 0_u64..100, 2 => 0_u64..500, 1 => 0_u64..2_500];
    let cost = prop_oneof![4 => Just(0_u64), 4 => 0_u64..200, 1 => 0_u64..1_001];
    let step =
        (pause, 0_u64..3, cost).prop_map(|(share, micros, cost)| Step { pause: (share, micros), cost });
    proptest::collection::vec(step, 1..most)
}

/// A counter with its own quota and clock.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) quota: Quota,
    pub(crate) now: u64,
    counter: Counter,
}

impl Subject {
    pub(crate) fn new(quota: Quota) -> Self {
        Self { quota, now: START, counter: Counter::new(&quota) }
    }

    /// A counter with a history.
    pub(crate) fn with_history(quota: Quota, steps: &[Step]) -> Self {
        let mut subject = Self::new(quota);
        for step in steps {
            subject.now += step.pause(&quota);
            subject.charge(step.cost(&quota));
        }
        subject
    }

    pub(crate) fn charge(&mut self, cost: u32) -> Outcome {
        self.counter.charge(&self.quota, cost, Timestamp::from_micros(self.now))
    }

    pub(crate) fn peek(&self, cost: u32) -> Outcome {
        self.counter.peek(&self.quota, cost, Timestamp::from_micros(self.now))
    }

    pub(crate) fn refund(&mut self, cost: u32, receipt: Option<Receipt>) {
        self.counter.refund(cost, receipt, Timestamp::from_micros(self.now));
    }

    pub(crate) fn debit(&mut self, cost: u32) {
        self.counter.debit(&self.quota, cost, None, Timestamp::from_micros(self.now));
    }

    /// The same counter, read back from its bytes.
    pub(crate) fn rewritten(&self) -> Self {
        let counter = codec::decode(&codec::encode(&self.counter)).expect("its own bytes");
        Self { counter, ..self.clone() }
    }

    pub(crate) fn remaining(&self) -> u32 {
        self.peek(1).remaining()
    }

    pub(crate) fn remaining_in(&self, wait: Duration) -> u32 {
        self.clone().after(wait).remaining()
    }

    pub(crate) fn after(mut self, wait: Duration) -> Self {
        self.now += wait.as_micros() as u64;
        self
    }

    /// Retries when told to until `cost` fits, and returns how long that took.
    pub(crate) fn time_locked(&mut self, cost: u32) -> Duration {
        let mut waited = Duration::ZERO;
        for _ in 0..100 {
            let Some(retry) = self.charge(cost).retry() else { return waited };
            let wait = retry.after().expect("the cost fits at some time");
            waited += wait;
            self.now += wait.as_micros() as u64;
        }
        panic!("denied a hundred times, having waited as told: {}", self.quota);
    }
}
