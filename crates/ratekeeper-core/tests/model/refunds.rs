//! Refunds, for all algorithms.

use proptest::prelude::*;
use ratekeeper_core::{Receipt, Timestamp};

use crate::leaky_bucket::queue;
use crate::support::{Subject, cases, small_quota, steps};

proptest! {
    #![proptest_config(cases(512))]

    /// Whatever is given back, with whatever receipt, the budget grows by at most that, never exceeds the
    /// quota, and never shrinks.
    #[test]
    fn giving_back_never_lifts_above_the_quota(
        quota in small_quota(),
        steps in steps(40),
        refunds in proptest::collection::vec((0_u32..60, 0_usize..45), 1..20),
    ) {
        let mut subject = Subject::new(quota);
        let mut receipts = Vec::new();
        for step in steps {
            subject.now += step.pause(&quota);
            let outcome = subject.charge(step.cost(&quota));
            receipts.push(Receipt::new(Timestamp::from_micros(subject.now), outcome.reset_after()).delay(outcome.delay()));
        }
        for (cost, receipt) in refunds {
            let before = subject.remaining();
            subject.refund(cost, receipts.get(receipt).copied());
            prop_assert!(subject.remaining() >= before);
            prop_assert!(subject.remaining() <= before.saturating_add(cost).min(quota.max()));
        }
        let left = subject.remaining();
        prop_assert!(left == 0 || subject.charge(left).is_admitted());
        prop_assert!(!subject.charge(1).is_admitted());
    }

    /// A charge that is given back immediately leaves no trace.
    #[test]
    fn a_charge_given_back_at_once_leaves_no_trace(quota in small_quota(), steps in steps(40), cost in 1_u32..40) {
        let mut subject = Subject::with_history(quota, &steps);
        let untouched = subject.clone();
        let outcome = subject.charge(cost);
        if outcome.is_admitted() {
            subject.refund(cost, Some(Receipt::new(Timestamp::from_micros(subject.now), outcome.reset_after()).delay(outcome.delay())));
        }
        for share in [0, 1, 7, 64] {
            let wait = quota.full_refill() * share / 64;
            let [kept, given] = [&untouched, &subject].map(|subject| subject.clone().after(wait).peek(1));
            prop_assert_eq!(kept, given);
        }
    }

    /// After some gave up their places, the remaining departures keep their distance, and so do those that
    /// were refunded too late.
    #[test]
    fn a_queue_keeps_its_distances_when_some_leave(quota in queue(), steps in steps(60), leave in proptest::collection::vec(any::<bool>(), 60)) {
        let (limit, period) = (u128::from(quota.limit()), quota.period().as_micros());
        let mut subject = Subject::new(quota);
        let mut departures: Vec<u128> = Vec::new();
        let mut last: Option<Receipt> = None;
        for (step, leaves) in steps.iter().zip(leave) {
            subject.now += step.pause(&quota) / 4;
            let now = u128::from(subject.now);
            // The last in the queue leaves while it still waits, or is refunded after its departure.
            if let (true, Some(receipt), Some(departure)) = (leaves, last, departures.last()) {
                subject.refund(1, Some(receipt));
                if *departure >= now {
                    departures.pop();
                }
            }
            last = None;
            let outcome = subject.charge(1);
            if outcome.is_admitted() {
                departures.push(now + outcome.delay().as_micros());
                last = Some(Receipt::new(Timestamp::from_micros(subject.now), outcome.reset_after()).delay(outcome.delay()));
            }
        }
        for pair in departures.windows(2) {
            prop_assert!((pair[1] - pair[0] + 1) * limit > period, "{:?}", pair);
        }
    }
}
