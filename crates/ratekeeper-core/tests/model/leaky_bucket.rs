//! The leaky bucket, against a list of exact departures.

use proptest::prelude::*;
use ratekeeper_core::{Algorithm, Quota, Retry};

use crate::support::{Subject, cases, quota, small_rate, steps};

pub(crate) fn queue() -> impl Strategy<Value = Quota> {
    (small_rate(), proptest::option::of(1_u32..40))
        .prop_map(|(rate, capacity)| quota(Algorithm::LeakyBucket, rate, capacity))
}

proptest! {
    #![proptest_config(cases(256))]

    /// Times here are in microseconds times the limit, so that a place takes exactly a period.
    #[test]
    fn departures_are_those_of_the_model(quota in queue(), steps in steps(60)) {
        let (limit, period) = (u128::from(quota.limit()), quota.period().as_micros());
        let capacity = u128::from(quota.max()) * period;
        let (mut subject, mut free_at) = (Subject::new(quota), 0);
        for step in steps {
            subject.now += step.pause(&quota);
            let (now, cost) = (u128::from(subject.now) * limit, u128::from(step.cost(&quota)) * period);
            let departure = now.max(free_at);
            let outcome = subject.charge(step.cost(&quota));
            if cost > capacity {
                prop_assert_eq!(outcome.retry(), Some(Retry::Never));
            } else if departure + cost <= now + capacity {
                prop_assert!(outcome.is_admitted());
                prop_assert_eq!(outcome.delay().as_micros(), (departure - now).div_ceil(limit));
                free_at = departure + cost;
            } else {
                let wait = (departure + cost - now - capacity).div_ceil(limit);
                prop_assert_eq!(outcome.retry().and_then(Retry::after).map(|w| w.as_micros()), Some(wait));
            }
        }
    }

    #[test]
    fn departures_are_never_closer_than_the_rate_and_first_come_first_served(quota in queue(), steps in steps(60)) {
        let (limit, period) = (u128::from(quota.limit()), quota.period().as_micros());
        let mut subject = Subject::new(quota);
        let mut last: Option<(u128, u128)> = None;
        for step in steps {
            subject.now += step.pause(&quota);
            let cost = u128::from(step.cost(&quota));
            let outcome = subject.charge(step.cost(&quota));
            if outcome.is_admitted() {
                let departure = u128::from(subject.now) + outcome.delay().as_micros();
                if let Some((before, places)) = last {
                    // To the microsecond: each departure may be rounded up by less than one.
                    prop_assert!((departure - before + 1) * limit > places * period, "{before} {departure}");
                }
                last = Some((departure, cost));
            }
        }
    }

    #[test]
    fn a_queue_holds_at_most_its_capacity(quota in queue(), steps in steps(60)) {
        let mut subject = Subject::new(quota);
        let mut departures = Vec::new();
        for step in steps {
            subject.now += step.pause(&quota) / 2;
            let outcome = subject.charge(1);
            if outcome.is_admitted() {
                departures.push(subject.now + outcome.delay().as_micros() as u64);
            }
            let waiting = departures.iter().filter(|departure| **departure > subject.now).count();
            // The capacity includes the one that leaves immediately.
            prop_assert!(waiting < quota.max() as usize, "{} wait", waiting);
        }
    }
}
