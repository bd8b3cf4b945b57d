//! Refunds and resets.

use std::time::Duration;

use ratekeeper_core::{Algorithm, MINUTE, Quota, Receipt, Refund, Retry, SECOND, Store};

use crate::{Bench, Harness, each};

/// Several refunds in one call are all made, even those for the same key.
pub async fn all_refunds_of_a_call_are_made<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(10, MINUTE).into_iter().filter(|quota| quota.algorithm() != Algorithm::LeakyBucket) {
        let (caller, other) = (bench.caller(quota), bench.caller(quota).with_key("bob"));
        caller.take(9).await;
        other.take(5).await;
        let refunds = [(&caller, 2), (&other, 1), (&caller, 3)];
        let refunds = refunds.map(|(caller, cost)| Refund::new(caller.rule, &caller.key, cost));
        bench.store.refund(&refunds).await.expect("the store gives back");
        assert_eq!((caller.remaining().await, other.remaining().await), (6, 6), "{quota}");
    }
}

/// With the receipt of a charge, that charge is given back, in whole or in part.
pub async fn a_receipt_gives_its_charge_back<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(10, MINUTE) {
        let caller = bench.caller(quota);
        caller.take(4).await;
        let receipt = caller.take(5).await;
        caller.refund(5, Some(receipt)).await;
        assert_eq!(caller.remaining().await, 6, "{quota}");
        let receipt = caller.take(6).await;
        caller.refund(2, Some(receipt)).await;
        assert_eq!(caller.drain().await, 2, "{quota}");
    }
}

/// Without a receipt, what was charged last is given back; but a queue gives back nothing, because nothing
/// shows whether the place is the last.
pub async fn without_a_receipt_the_last_is_given_back<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(10, MINUTE) {
        let caller = bench.caller(quota);
        caller.take(9).await;
        caller.refund(4, None).await;
        let expected = if quota.algorithm() == Algorithm::LeakyBucket { 1 } else { 5 };
        assert_eq!(caller.drain().await, expected, "{quota}");
    }
}

/// Giving back too much, twice, or to a key that was never charged, never lifts a budget above its quota.
pub async fn giving_back_never_lifts_above_the_quota<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(10, MINUTE).into_iter().chain([Quota::per_second(3).burst(10)]) {
        let caller = bench.caller(quota);
        for cost in [3, 11, u32::MAX] {
            caller.reset().await;
            caller.refund(cost, None).await;
            assert_eq!(caller.drain().await, 10, "{quota}: {cost} to a new key");

            caller.reset().await;
            let receipt = caller.take(3).await;
            caller.refund(cost, Some(receipt)).await;
            caller.refund(cost, Some(receipt)).await;
            caller.refund(cost, None).await;
            let outcome = caller.peek(1).await;
            assert_eq!((outcome.remaining(), outcome.reset_after()), (10, Duration::ZERO), "{quota}: {cost}");
            assert_eq!(caller.drain().await, 10, "{quota}: {cost} twice");
        }
    }
}

/// A charge that no longer counts is not given back: what counts now belongs to others.
pub async fn a_charge_whose_window_is_over_is_not_given_back<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(10, MINUTE) {
        let caller = bench.caller(quota);
        bench.at(Duration::ZERO).await;
        let receipt = caller.take(6).await;
        bench.advance(quota.full_refill()).await;
        caller.take(8).await;
        caller.refund(6, Some(receipt)).await;
        assert_eq!(caller.drain().await, 2, "{quota}");
    }
}

/// Nor is a charge whose time is yet to come, because the clock was set back: it is unknown whether it still
/// counts.
pub async fn a_charge_from_before_the_clock_was_set_back_is_not_given_back<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(10, MINUTE) {
        let caller = bench.caller(quota);
        bench.at(60 * MINUTE).await;
        let receipt = caller.take(10).await;
        bench.at(MINUTE).await;
        assert!(!caller.charge(1).await.is_admitted(), "{quota}: a step back frees nothing");
        bench.advance(10 * MINUTE).await;
        assert_eq!(caller.drain().await, 10, "{quota}: it does not count for longer than a full refill");
        caller.refund(10, Some(receipt)).await;
        assert_eq!(caller.drain().await, 0, "{quota}: these are other charges");
    }
}

/// A sliding window takes the charge off the window that it was made in.
pub async fn a_sliding_window_gives_back_to_the_window_that_was_charged<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let caller = bench.caller(Quota::sliding_window(100, MINUTE));
    let receipt = caller.take(80).await;
    bench.at(90 * SECOND).await;
    caller.take(30).await;
    assert_eq!(caller.remaining().await, 30);
    // 40 of the previous window count for 20 in the middle of this one.
    caller.refund(40, Some(receipt)).await;
    assert_eq!(caller.remaining().await, 50);
}

/// A log removes the admission that the receipt is for, so the others leave when they would have anyway.
pub async fn a_log_strikes_the_admission_of_the_receipt<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let caller = bench.caller(Quota::sliding_log(10, MINUTE));
    caller.take(2).await;
    bench.advance(10 * SECOND).await;
    let receipt = caller.take(3).await;
    bench.advance(10 * SECOND).await;
    caller.take(5).await;
    caller.refund(9, Some(receipt)).await;
    assert_eq!(caller.remaining().await, 3);
    assert_eq!(caller.peek(4).await.retry(), Some(Retry::After(40 * SECOND)));
}

/// Only the last in line gives back its place in a queue; the next request gets it, with the same delay.
pub async fn only_the_last_in_line_gives_its_place_back<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in [Quota::leaky_bucket(1, SECOND).capacity(5), Quota::leaky_bucket(3, SECOND).capacity(5)] {
        let caller = bench.caller(quota);
        let mut receipts = Vec::new();
        for _ in 0..4 {
            receipts.push(caller.take(1).await);
        }
        for receipt in &receipts[..3] {
            caller.refund(1, Some(*receipt)).await;
            assert_eq!(caller.remaining().await, 1, "{quota}");
        }
        let delay = caller.peek(1).await.delay();
        caller.refund(1, Some(receipts[3])).await;
        assert!(caller.peek(1).await.delay() < delay, "{quota}");
        caller.take(1).await;
        assert_eq!(caller.peek(1).await.delay(), delay, "{quota}");
    }
}

/// Of a request that has left a queue, as much stays taken as the next one needs to keep its distance: one
/// that is charged 3 and settled to 1 after 1.1 seconds leaves the queue free.
pub async fn a_request_that_has_left_a_queue_keeps_the_distance_and_no_more<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let quota = Quota::leaky_bucket(1, SECOND).capacity(10);
    for (charged, back, takes, departures) in
        [(3, 2, 1_100, 1_100), (3, 2, 400, 1_000), (3, 3, 400, 1_000), (1, 1, 999, 1_000), (5, 2, 400, 3_000)]
    {
        let caller = bench.caller(quota);
        caller.reset().await;
        let (takes, departures) = (Duration::from_millis(takes), Duration::from_millis(departures));
        let mut departed = bench.harness.now().await;
        let mut receipt = caller.take(charged).await;
        for _ in 0..5 {
            bench.harness.set(departed.saturating_add(takes)).await;
            caller.refund(back, Some(receipt)).await;
            let decision = bench.charge(&[caller.cost(charged)]).await;
            receipt = Receipt::of(&decision, caller.rule).expect("the queue has room");
            let next = decision.at().saturating_add(decision.delay());
            assert_eq!(next.saturating_since(departed), departures, "{charged} and {back} after {takes:?}");
            departed = next;
        }
    }
}

/// A refund takes place even if its future is dropped before it was ever polled.
pub async fn a_refund_takes_place_though_nobody_waits_for_it<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(10, MINUTE) {
        let caller = bench.caller(quota);
        let receipt = caller.take(10).await;
        drop(bench.store.refund(&[Refund::new(caller.rule, &caller.key, 4).receipt(receipt)]));
        // What is handed over later is done later, so when the next refund is done, this one is done, too.
        caller.refund(0, None).await;
        assert_eq!(caller.remaining().await, 4, "{quota}");
    }
}

/// A reset forgets one key under one rule, and no other.
pub async fn a_reset_forgets_one_key_under_one_rule<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(10, MINUTE) {
        let mine = bench.caller(quota);
        let other_key = bench.caller(quota).with_key("bob");
        let other_rule = bench.caller_under(bench.rule(&format!("of-{}", quota.algorithm())), quota);
        for caller in [&mine, &other_key, &other_rule] {
            caller.take(10).await;
        }
        mine.reset().await;
        let outcome = mine.peek(1).await;
        assert_eq!((outcome.remaining(), outcome.reset_after()), (10, Duration::ZERO), "{quota}");
        assert_eq!((other_key.remaining().await, other_rule.remaining().await), (0, 0), "{quota}");
        assert_eq!(mine.drain().await, 10, "{quota}");
    }
}

/// A key that was never charged can be reset.
pub async fn a_key_that_was_never_charged_can_be_reset<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let caller = bench.caller(Quota::per_minute(3));
    caller.reset().await;
    caller.reset().await;
    assert_eq!(caller.drain().await, 3);
}

/// What has come back to a bucket by itself is not given back a second time.
pub async fn a_late_refund_gives_back_what_is_still_out<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let caller = bench.caller(Quota::per_second(1).burst(10));
    let receipt = caller.take(10).await;
    bench.advance(9 * SECOND).await;
    caller.take(9).await;
    bench.advance(Duration::from_millis(900)).await;
    // Nine tenths of a unit are there, and one tenth of the first charge is still missing.
    caller.refund(10, Some(receipt)).await;
    assert_eq!(caller.drain().await, 1);
}
