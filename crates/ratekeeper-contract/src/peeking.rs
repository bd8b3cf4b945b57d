//! Looking without touching.

use std::time::Duration;

use ratekeeper_core::{Decision, MINUTE, Quota, Retry, SECOND};

use crate::{Bench, Harness, each};

/// A peek answers what a charge would, for every cost, and changes nothing however often it is repeated.
pub async fn a_peek_says_what_a_charge_would<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(5, MINUTE).into_iter().chain([Quota::per_second(3).burst(5)]) {
        let caller = bench.caller(quota);
        for step in 0..12 {
            bench.advance(Duration::from_micros(3_141_593)).await;
            for cost in [6, 5, 2, 1] {
                let peek = caller.peek(cost).await;
                assert_eq!(caller.peek(cost).await, peek, "{quota}: {cost} at {step}");
                let charge = caller.charge(cost).await;
                assert_eq!(peek.is_admitted(), charge.is_admitted(), "{quota}: {cost} at {step}");
                assert_eq!(peek.delay(), charge.delay(), "{quota}: {cost} at {step}");
                if charge.is_admitted() {
                    assert_eq!(peek.remaining(), charge.remaining() + cost, "{quota}: {cost} at {step}");
                } else {
                    assert_eq!(peek, charge, "{quota}: {cost} at {step}");
                }
            }
        }
    }
}

/// A peek at several rules answers what the request would be answered, and charges none.
pub async fn a_peek_at_several_rules_charges_none<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let [open, spent] = [Quota::per_minute(9), Quota::sliding_log(2, MINUTE)].map(|q| bench.caller(q));
    let charges = [open.cost(1), spent.cost(1)];
    for left in [2, 1] {
        let peek = bench.peek(&charges).await;
        assert!(peek.is_admitted());
        assert_eq!(peek.outcomes().nth(1).map(|(_, outcome)| outcome.remaining()), Some(left));
        assert!(bench.charge(&charges).await.is_admitted());
    }
    let peek = bench.peek(&charges).await;
    assert_eq!(peek, bench.charge(&charges).await);
    assert_eq!(peek.retry(), Some(Retry::After(MINUTE)));
    assert_eq!(open.remaining().await, 7);
}

/// A peek at the same key twice answers each as the charge would.
pub async fn a_peek_at_a_key_twice_says_what_a_charge_would<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(10, SECOND) {
        let caller = bench.caller(quota);
        for wait in [None, Some(Duration::from_millis(250))] {
            let charge = |cost| match wait {
                Some(wait) => caller.cost(cost).wait_up_to(wait),
                None => caller.cost(cost),
            };
            let twice = [charge(1), charge(2), charge(1)];
            for _ in 0..6 {
                let (peek, made) = (bench.peek(&twice).await, bench.charge(&twice).await);
                let said = |decision: &Decision| -> Vec<_> {
                    decision.outcomes().map(|(_, outcome)| (outcome.delay(), outcome.retry())).collect()
                };
                assert_eq!(said(&peek), said(&made), "{quota} {wait:?}");
            }
            bench.advance(quota.full_refill()).await;
        }
    }
}

/// A peek under another quota reports what that would answer, and the key stays counted as it was.
pub async fn a_peek_under_another_quota_does_not_change_the_quota<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(10, MINUTE) {
        for other in each(100, SECOND) {
            let mut caller = bench.caller(quota);
            caller.reset().await;
            caller.take(6).await;
            let before = caller.peek(5).await;
            caller.quota = other;
            assert_eq!(caller.remaining().await, 94, "{quota} as {other}");
            caller.quota = quota;
            assert_eq!(caller.peek(5).await, before, "{quota} as {other}");
        }
    }
}
