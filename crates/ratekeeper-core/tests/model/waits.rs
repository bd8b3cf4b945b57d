//! Announced waits, for all algorithms.

use proptest::prelude::*;
use ratekeeper_core::Retry;

use crate::support::{MICRO, Subject, cases, small_quota, steps};

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn waiting_as_told_succeeds_and_a_microsecond_less_fails(quota in small_quota(), steps in steps(40), cost in 1_u32..41) {
        let mut subject = Subject::with_history(quota, &steps);
        match subject.charge(cost).retry() {
            None => prop_assert!(cost <= quota.max()),
            Some(Retry::Never) => prop_assert!(cost > quota.max()),
            Some(Retry::After(wait)) => {
                prop_assert!(cost <= quota.max() && wait <= quota.full_refill());
                let early = subject.clone().after(wait - MICRO).charge(cost);
                prop_assert_eq!(early.retry(), Some(Retry::After(MICRO)));
                prop_assert!(subject.after(wait).charge(cost).is_admitted());
            }
        }
    }

    #[test]
    fn a_budget_grows_and_is_whole_when_it_was_announced_to(quota in small_quota(), steps in steps(40)) {
        let subject = Subject::with_history(quota, &steps);
        let outcome = subject.peek(1);
        let (refill, reset) = (outcome.refill_after(), outcome.reset_after());
        prop_assert_eq!(subject.remaining_in(reset), quota.max());
        prop_assert!(refill <= reset && reset <= quota.full_refill());
        if outcome.remaining() < quota.max() {
            prop_assert!(subject.remaining_in(refill) > outcome.remaining());
            prop_assert_eq!(subject.remaining_in(refill - MICRO), outcome.remaining());
            prop_assert!(subject.remaining_in(reset - MICRO) < quota.max());
        }
    }

    #[test]
    fn a_denial_takes_nothing(quota in small_quota(), steps in steps(40), costs in proptest::collection::vec(1_u32..50, 1..20)) {
        let mut subject = Subject::with_history(quota, &steps);
        let untouched = subject.clone();
        for cost in costs {
            if !subject.clone().charge(cost).is_admitted() {
                prop_assert_eq!(subject.charge(cost), untouched.peek(cost));
            }
        }
        for wait in [0, 1, 10, 100] {
            let wait = quota.full_refill() * wait / 64;
            prop_assert_eq!(subject.clone().after(wait).peek(1), untouched.clone().after(wait).peek(1));
        }
    }

    #[test]
    fn a_peek_says_what_a_charge_would(quota in small_quota(), steps in steps(40), cost in 0_u32..50) {
        let mut subject = Subject::with_history(quota, &steps);
        let peek = subject.peek(cost);
        let charge = subject.charge(cost);
        prop_assert_eq!(peek.is_admitted(), charge.is_admitted());
        prop_assert_eq!((peek.retry(), peek.delay()), (charge.retry(), charge.delay()));
        prop_assert_eq!(peek.remaining(), charge.remaining() + if charge.is_admitted() { cost } else { 0 });
    }
}
