//! The three windows, against a model that remembers every admission forever.

use proptest::prelude::*;
use ratekeeper_core::{Algorithm, Quota};

use crate::support::{START, Subject, cases, quota, small_rate, steps};

/// Every admission, oldest first.
#[derive(Default)]
struct Admissions(Vec<(u64, u32)>);

impl Admissions {
    /// What was admitted from one time until just before another.
    fn between(&self, from: u64, to: u64) -> u128 {
        self.0.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, cost)| u128::from(*cost)).sum()
    }

    /// How much is left now, in units times the period.
    fn room(&self, quota: &Quota, now: u64) -> i128 {
        let period = quota.period().as_micros() as u64;
        let wide = u128::from(period);
        let window = now - now % period;
        let current = self.between(window, now + 1) * wide;
        let used = match quota.algorithm() {
            Algorithm::FixedWindow => current,
            Algorithm::SlidingWindow => {
                current + self.between(window - period, window) * u128::from(window + period - now)
            }
            _ => self.between(now - period + 1, now + 1) * wide,
        };
        i128::from(quota.max()) * wide as i128 - used as i128
    }
}

fn window() -> impl Strategy<Value = Quota> {
    let algorithms = [Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::SlidingLog];
    (proptest::sample::select(algorithms.to_vec()), small_rate())
        .prop_map(|(algorithm, rate)| quota(algorithm, rate, None))
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn every_answer_is_that_of_the_model(quota in window(), steps in steps(80)) {
        let (mut subject, mut admissions) = (Subject::new(quota), Admissions::default());
        let period = quota.period().as_micros() as i128;
        for step in steps {
            subject.now += step.pause(&quota);
            let cost = step.cost(&quota);
            let fits = i128::from(cost) * period <= admissions.room(&quota, subject.now);
            let outcome = subject.charge(cost);
            prop_assert_eq!(outcome.is_admitted(), fits);
            if fits {
                admissions.0.push((subject.now, cost));
            }
            let room = admissions.room(&quota, subject.now);
            prop_assert_eq!(i128::from(outcome.remaining()), room.div_euclid(period));
            prop_assert_eq!(outcome.reset_after().is_zero(), room == i128::from(quota.max()) * period);
        }
    }

    #[test]
    fn a_fixed_window_admits_at_most_its_limit_in_each_window(rate in small_rate(), steps in steps(80)) {
        let quota = quota(Algorithm::FixedWindow, rate, None);
        let (mut subject, period) = (Subject::new(quota), quota.period().as_micros() as u64);
        let (mut window, mut admitted) = (0, 0);
        for step in steps {
            subject.now += step.pause(&quota);
            if window != subject.now / period {
                (window, admitted) = (subject.now / period, 0);
            }
            let cost = step.cost(&quota);
            admitted += if subject.charge(cost).is_admitted() { cost } else { 0 };
            prop_assert!(admitted <= quota.max());
        }
    }

    #[test]
    fn a_log_admits_at_most_its_limit_in_every_trailing_window(rate in small_rate(), steps in steps(80)) {
        let quota = quota(Algorithm::SlidingLog, rate, None);
        let (mut subject, mut admissions) = (Subject::new(quota), Admissions::default());
        for step in steps {
            subject.now += step.pause(&quota);
            if subject.charge(step.cost(&quota)).is_admitted() {
                admissions.0.push((subject.now, step.cost(&quota)));
            }
        }
        let period = quota.period().as_micros() as u64;
        // The fullest windows end at an admission.
        for (end, _) in &admissions.0 {
            prop_assert!(admissions.between(end + 1 - period, end + 1) <= u128::from(quota.max()));
        }
        prop_assert!(admissions.0.iter().all(|(at, _)| *at >= START));
    }

    /// Around an edge, a fixed window admits two limits, and no sliding form does.
    #[test]
    fn no_sliding_form_admits_twice_its_limit_around_an_edge(quota in window(), before in 1_u64..1_000) {
        let period = quota.period().as_micros() as u64;
        let mut subject = Subject::new(quota);
        let edge = (START / period + 1) * period;
        subject.now = edge - before.min(period / 100).max(1);
        prop_assert!(subject.charge(quota.max()).is_admitted());
        subject.now = edge;
        let outcome = subject.charge(quota.max());
        prop_assert_eq!(outcome.is_admitted(), quota.algorithm() == Algorithm::FixedWindow);
    }
}
