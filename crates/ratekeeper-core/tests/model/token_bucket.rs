//! The token bucket, against a bucket whose level is a fraction over the period.

use proptest::prelude::*;
use ratekeeper_core::algorithm::Counter;
use ratekeeper_core::{Quota, Retry, Timestamp};

use crate::support::{START, Step, cases, rate, steps};

/// The content of the bucket, in tokens times the period's microseconds.
struct Model {
    level: u128,
    limit: u128,
    period: u128,
    burst: u128,
}

impl Model {
    fn new(quota: &Quota) -> Self {
        let (limit, period) = (u128::from(quota.limit()), quota.period().as_micros());
        let burst = u128::from(quota.max());
        Self { level: burst * period, limit, period, burst }
    }

    fn advance(&mut self, micros: u64) {
        self.level = (self.level + u128::from(micros) * self.limit).min(self.burst * self.period);
    }

    /// Takes the cost, or returns how many microseconds are missing; `None` means never.
    fn charge(&mut self, cost: u32) -> Result<(), Option<u128>> {
        let cost = u128::from(cost);
        if cost > self.burst {
            return Err(None);
        }
        match (cost * self.period).checked_sub(self.level) {
            None | Some(0) => {
                self.level -= cost * self.period;
                Ok(())
            }
            Some(missing) => Err(Some(missing.div_ceil(self.limit))),
        }
    }
}

fn bucket() -> impl Strategy<Value = Quota> {
    (rate(), prop_oneof![Just(None), (1_u32..50).prop_map(Some), (1_u32..1_000_000).prop_map(Some)])
        .prop_map(|((limit, period), burst)| {
            let quota = Quota::token_bucket(limit, period);
            burst.map_or(quota, |burst| quota.burst(burst))
        })
        .prop_filter("it takes centuries to fill", |quota| quota.check().is_ok())
}

/// Plays a history, and returns when and how much was admitted.
fn admissions(quota: &Quota, steps: &[Step]) -> Vec<(u64, u32)> {
    let (mut state, mut now) = (Counter::new(quota), START);
    let mut admitted = Vec::new();
    for step in steps {
        now += step.pause(quota);
        let cost = step.cost(quota);
        if state.charge(quota, cost, Timestamp::from_micros(now)).is_admitted() {
            admitted.push((now, cost));
        }
    }
    admitted
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn every_answer_is_that_of_the_model(quota in bucket(), steps in steps(60)) {
        let (mut state, mut model, mut now) = (Counter::new(&quota), Model::new(&quota), START);
        for step in steps {
            let (pause, cost) = (step.pause(&quota), step.cost(&quota));
            now += pause;
            model.advance(pause);
            let outcome = state.charge(&quota, cost, Timestamp::from_micros(now));
            match model.charge(cost) {
                Ok(()) => prop_assert!(outcome.is_admitted()),
                Err(None) => prop_assert_eq!(outcome.retry(), Some(Retry::Never)),
                Err(Some(wait)) => {
                    prop_assert_eq!(outcome.retry().and_then(Retry::after).map(|w| w.as_micros()), Some(wait));
                }
            }
            prop_assert_eq!(u128::from(outcome.remaining()), model.level / model.period);
            let missing = model.burst * model.period - model.level;
            prop_assert_eq!(outcome.reset_after().as_micros(), missing.div_ceil(model.limit));
        }
    }

    #[test]
    fn over_any_span_at_most_burst_and_rate_times_span_are_admitted(quota in bucket(), steps in steps(60)) {
        let admitted = admissions(&quota, &steps);
        let period = quota.period().as_micros();
        for (i, (from, _)) in admitted.iter().enumerate() {
            let mut total = 0;
            for (to, cost) in &admitted[i..] {
                total += u128::from(*cost);
                let refilled = u128::from(to - from) * u128::from(quota.limit());
                prop_assert!(total * period <= u128::from(quota.max()) * period + refilled);
            }
        }
    }

    /// A caller that takes whatever is there whenever it looks gets the ideal amount, rounded down.
    #[test]
    fn a_greedy_caller_gets_the_ideal_and_never_more((limit, period) in rate(), looks in proptest::collection::vec(0_u64..1_000, 1..200)) {
        // One more than a period refills, for the fraction that is left behind.
        let quota = Quota::token_bucket(limit, period).burst(limit + 1);
        let (mut state, mut now) = (Counter::new(&quota), START);
        let mut total = 0;
        for look in looks {
            let now_at = Timestamp::from_micros(now);
            let there = state.peek(&quota, 1, now_at).remaining();
            prop_assert!(state.charge(&quota, there, now_at).is_admitted());
            total += u128::from(there);
            let ideal = u128::from(limit + 1) * period.as_micros() + u128::from(now - START) * u128::from(limit);
            prop_assert_eq!(total, ideal / period.as_micros());
            // Within a period, so that nothing is lost by coming late.
            now += (period.as_micros() as u64 / 1_000 * look + look % 3).min(period.as_micros() as u64);
        }
    }

    #[test]
    fn an_idle_bucket_holds_its_burst_and_no_more(quota in bucket(), steps in steps(20), idle in 0_u64..10_000_000_000) {
        let mut state = Counter::new(&quota);
        let mut now = START;
        for step in steps {
            now += step.pause(&quota);
            state.charge(&quota, step.cost(&quota), Timestamp::from_micros(now));
        }
        now += quota.full_refill().as_micros() as u64 + idle;
        let now = Timestamp::from_micros(now);
        prop_assert!(state.charge(&quota, quota.max(), now).is_admitted());
        prop_assert!(!state.charge(&quota, 1, now).is_admitted());
    }
}
