//! Quotas that change, between all pairs of algorithms.

use proptest::prelude::*;
use ratekeeper_core::{Algorithm, Quota, Retry};

use crate::support::{MICRO, Subject, cases, small_quota, steps};

/// Whether both quotas count the same: a log of another period counts other entries, and nothing else
/// differs.
fn counts_alike(old: &Quota, new: &Quota) -> bool {
    let is_log = |quota: &Quota| quota.algorithm() == Algorithm::SlidingLog;
    old.period() == new.period() || !(is_log(old) && is_log(new))
}

proptest! {
    #![proptest_config(cases(768))]

    #[test]
    fn what_was_used_stays_used(old in small_quota(), new in small_quota(), steps in steps(40)) {
        let mut subject = Subject::with_history(old, &steps);
        let used = old.max() - subject.remaining();
        subject.quota = new;
        let remaining = subject.remaining();
        if counts_alike(&old, &new) {
            prop_assert_eq!(remaining, new.max().saturating_sub(used));
        }
        prop_assert_eq!(subject.peek(1).limit(), new.max());
        // No more than the new quota holds is admitted at once.
        prop_assert!(remaining == 0 || subject.charge(remaining).is_admitted());
        prop_assert!(!subject.charge(1).is_admitted());
    }

    #[test]
    fn nobody_is_locked_for_longer_than_the_new_quotas_full_refill(old in small_quota(), new in small_quota(), steps in steps(40)) {
        let mut subject = Subject::with_history(old, &steps);
        subject.quota = new;
        prop_assert!(subject.peek(1).reset_after() <= new.full_refill());
        prop_assert!(subject.time_locked(new.max()) <= new.full_refill());
    }

    #[test]
    fn a_wait_after_a_change_is_exact(old in small_quota(), new in small_quota(), steps in steps(40), cost in 1_u32..40) {
        let mut subject = Subject::with_history(old, &steps);
        subject.quota = new;
        if let Some(Retry::After(wait)) = subject.charge(cost).retry() {
            prop_assert!(!subject.clone().after(wait - MICRO).charge(cost).is_admitted());
            prop_assert!(subject.after(wait).charge(cost).is_admitted());
        }
    }

    #[test]
    fn a_chain_of_changes_is_never_an_error_and_never_without_a_limit(
        quotas in proptest::collection::vec(small_quota(), 1..12),
        steps in steps(60),
    ) {
        let mut subject = Subject::new(quotas[0]);
        for (i, step) in steps.iter().enumerate() {
            subject.quota = quotas[i * quotas.len() / steps.len()];
            subject.now += step.pause(&subject.quota);
            let outcome = subject.charge(step.cost(&subject.quota));
            prop_assert!(outcome.remaining() <= outcome.limit());
            prop_assert_eq!(outcome.limit(), subject.quota.max());
            prop_assert!(outcome.reset_after() <= subject.quota.full_refill());
            let left = outcome.remaining();
            let mut greedy = subject.clone();
            prop_assert!(left == 0 || greedy.charge(left).is_admitted());
            prop_assert!(!greedy.charge(1).is_admitted());
        }
    }
}
