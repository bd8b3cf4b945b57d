//! Clocks that step back, for all algorithms, also while the quota changes.

use proptest::prelude::*;
use ratekeeper_core::{Quota, Retry};

use crate::support::{MICRO, Subject, cases, small_quota, steps};

/// How far a clock steps back: from microseconds to many refills.
fn back(quota: &Quota, share: u64, micros: u64) -> u64 {
    (quota.full_refill().as_micros() * u128::from(share) / 1_000) as u64 + micros
}

proptest! {
    #![proptest_config(cases(768))]

    #[test]
    fn a_step_back_frees_nothing(quota in small_quota(), steps in steps(40), share in 0_u64..20_000, micros in 1_u64..100) {
        let mut subject = Subject::with_history(quota, &steps);
        let before = subject.remaining();
        subject.now -= back(&quota, share, micros);
        prop_assert!(subject.remaining() <= before);
    }

    #[test]
    fn a_step_back_locks_nobody_for_longer_than_a_full_refill(quota in small_quota(), steps in steps(40), share in 0_u64..20_000, micros in 1_u64..100, cost in 1_u32..40) {
        let mut subject = Subject::with_history(quota, &steps);
        subject.now -= back(&quota, share, micros);
        prop_assert!(subject.time_locked(cost.min(quota.max())) <= quota.full_refill());
    }

    #[test]
    fn a_wait_after_a_step_back_is_exact(quota in small_quota(), steps in steps(40), share in 0_u64..20_000, cost in 1_u32..40) {
        let mut subject = Subject::with_history(quota, &steps);
        subject.now -= back(&quota, share, 1);
        if let Some(Retry::After(wait)) = subject.charge(cost).retry() {
            prop_assert!(!subject.clone().after(wait - MICRO).charge(cost).is_admitted());
            prop_assert!(subject.after(wait).charge(cost).is_admitted());
        }
    }

    #[test]
    fn a_step_back_and_a_change_at_once_lock_nobody_for_longer(old in small_quota(), new in small_quota(), steps in steps(40), share in 0_u64..20_000) {
        let mut subject = Subject::with_history(old, &steps);
        subject.now -= back(&old, share, 1);
        subject.quota = new;
        prop_assert!(subject.time_locked(new.max()) <= new.full_refill());
    }

    /// However the clock jumps back and forth, what is admitted at once never exceeds the quota.
    #[test]
    fn a_clock_that_goes_to_and_fro_keeps_the_limit(quota in small_quota(), steps in steps(60), backs in proptest::collection::vec(0_u64..1_000, 1..60)) {
        let mut subject = Subject::new(quota);
        for (step, share) in steps.iter().zip(&backs) {
            subject.now += step.pause(&quota);
            subject.now -= if share % 2 == 0 { 0 } else { back(&quota, *share, 0) };
            let outcome = subject.charge(step.cost(&quota));
            prop_assert!(outcome.reset_after() <= quota.full_refill());
            let mut greedy = subject.clone();
            let left = outcome.remaining();
            prop_assert!(left == 0 || greedy.charge(left).is_admitted());
            prop_assert!(!greedy.charge(1).is_admitted());
        }
    }
}
