//! Debits, and the debts that they may leave.

use std::time::Duration;

use ratekeeper_core::{Algorithm, Charge, Debit, MINUTE, Quota, SECOND, Store};

use crate::{Bench, Harness, MICRO, each, wait};

/// One quota of each algorithm, and buckets whose rate has fractions.
fn quotas() -> impl Iterator<Item = Quota> {
    let odd = [Quota::per_second(7).burst(10), Quota::leaky_bucket(3, SECOND).capacity(10)];
    each(10, MINUTE).into_iter().chain(odd)
}

/// The longest that debts lock anybody out.
fn longest_lock(quota: &Quota) -> Duration {
    match quota.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => 2 * quota.full_refill(),
        _ => quota.full_refill(),
    }
}

/// What is debited and given back for a charge belongs to that charge: what others have charged stays,
/// whenever it leaves.
pub async fn what_is_debited_for_a_charge_is_given_back_with_it<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(100, MINUTE) {
        let caller = bench.caller(quota);
        let first = caller.take(10).await;
        bench.advance(MICRO).await;
        let second = caller.take(10).await;
        bench.advance(MICRO).await;
        bench.debit(&[Debit::new(caller.cost(30)).receipt(first)]).await;
        if quota.algorithm() == Algorithm::LeakyBucket {
            // Only the last place in a queue can be given back.
            continue;
        }
        bench.advance(MICRO).await;
        // All of the first but one. A bucket gives back what it is asked for, whenever that was taken.
        let receipt = (quota.algorithm() != Algorithm::TokenBucket).then_some(first);
        caller.refund(39, receipt).await;
        assert_eq!(caller.remaining().await, 100 - 1 - 10, "{quota}");
        caller.refund(10, Some(second)).await;
        assert_eq!(caller.remaining().await, 100 - 1, "{quota}");
    }
}

/// A debit that fits leaves what a charge leaves.
pub async fn a_debit_that_fits_counts_like_a_charge<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in quotas() {
        let debited = bench.caller(quota);
        let charged = bench.caller(quota).with_key("bob");
        for cost in [1, 0, 5] {
            debited.debit(cost).await;
            charged.take(cost).await;
            assert_eq!(debited.peek(1).await, charged.peek(1).await, "{quota}");
        }
        assert_eq!(debited.drain().await, 4, "{quota}");
    }
}

/// Two take 50 of 100 each; one is debited 30 more, the other gives 40 back: in either order, 10 remain.
pub async fn the_order_of_debits_and_refunds_does_not_matter<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    // A queue gives back only the place that was taken last.
    for quota in each(100, MINUTE).into_iter().filter(|quota| quota.algorithm() != Algorithm::LeakyBucket) {
        for with_receipts in [false, true] {
            let caller = bench.caller(quota);
            for debit_first in [false, true] {
                caller.reset().await;
                caller.take(50).await;
                let receipt = Some(caller.take(50).await).filter(|_| with_receipts);
                if debit_first {
                    caller.debit(30).await;
                    assert!(!caller.charge(1).await.is_admitted(), "{quota}");
                }
                caller.refund(40, receipt).await;
                if !debit_first {
                    caller.debit(30).await;
                }
                assert_eq!(caller.drain().await, 10, "{quota}");
            }
        }
    }
}

/// A budget in debt has nothing left, and reports to the microsecond when something fits again. Denials do
/// not prolong that.
pub async fn a_debt_is_paid_off_at_the_quotas_pace<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in quotas() {
        let caller = bench.caller(quota);
        for cost in [1, 4, 10] {
            caller.reset().await;
            bench.at(Duration::from_micros(123_457)).await;
            caller.take(8).await;
            caller.debit(5).await;
            let told = caller.charge(cost).await;
            assert_eq!((told.is_admitted(), told.remaining()), (false, 0), "{quota}");
            assert_eq!(caller.peek(cost).await, told, "{quota}");
            bench.advance(wait(&told) - MICRO).await;
            assert!(!caller.charge(cost).await.is_admitted(), "{quota}: {cost}, a microsecond early");
            bench.advance(MICRO).await;
            assert!(caller.charge(cost).await.is_admitted(), "{quota}: {cost}, in time");
        }
    }
}

/// What a budget in debt reports includes the debt: when something comes back, and when all of it has.
pub async fn a_refill_and_a_reset_include_the_debt<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in quotas() {
        let caller = bench.caller(quota);
        bench.at(Duration::ZERO).await;
        caller.take(10).await;
        caller.debit(6).await;
        let told = caller.peek(1).await;
        let (refill, reset) = (told.refill_after(), told.reset_after());
        bench.at(refill - MICRO).await;
        assert_eq!(caller.remaining().await, 0, "{quota}");
        assert!(caller.peek(1).await.reset_after() > Duration::ZERO, "{quota}");
        bench.at(refill).await;
        assert!(caller.remaining().await > 0, "{quota}");
        if reset > refill {
            bench.at(reset - MICRO).await;
            assert!(caller.peek(1).await.reset_after() > Duration::ZERO, "{quota}");
        }
        bench.at(reset).await;
        let whole = caller.peek(1).await;
        assert_eq!((whole.remaining(), whole.reset_after()), (10, Duration::ZERO), "{quota}");
    }
}

/// Whatever is debited, nobody is locked out for longer than two full refills.
pub async fn no_debt_locks_for_longer_than_two_full_refills<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in quotas() {
        for cost in [11, 21, u32::MAX] {
            let caller = bench.caller(quota);
            caller.reset().await;
            for _ in 0..3 {
                caller.debit(cost).await;
            }
            assert!(caller.time_locked(None).await <= longest_lock(&quota), "{quota}: {cost}");
        }
    }
}

/// Nor does a clock that is set back in the meantime, which does not forgive the debt either.
pub async fn a_step_back_neither_forgives_a_debt_nor_prolongs_it<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in quotas() {
        let caller = bench.caller(quota);
        bench.at(10 * MINUTE).await;
        caller.debit(15).await;
        let told = wait(&caller.charge(1).await);
        bench.step_back(5 * MINUTE).await;
        let stepped = wait(&caller.charge(1).await);
        assert!(stepped >= told.min(quota.full_refill()), "{quota}");
        // It could be a reservation.
        let longest = longest_lock(&quota).max(quota.full_refill() + Charge::MAX_WAIT);
        assert!(caller.time_locked(None).await <= longest, "{quota}");
    }
}

/// A key that is counted differently from now on owes nothing: it is never locked for longer than the new
/// quota's full refill.
pub async fn another_rate_or_algorithm_forgives_the_debt<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let rule = bench.rule("forgiven");
    for old in each(10, MINUTE) {
        for new in each(7, SECOND) {
            let caller = bench.caller_under(rule, old);
            caller.reset().await;
            caller.debit(20).await;
            let changed = bench.caller_under(rule, new);
            assert!(!changed.charge(1).await.is_admitted(), "{old}, then {new}");
            assert!(changed.time_locked(None).await <= new.full_refill(), "{old}, then {new}");
            // And the other way round: what is due is counted under the quota that it is due under.
            changed.reset().await;
            caller.take(3).await;
            changed.debit(2).await;
            assert_eq!(changed.drain().await, 2, "{old}, then {new}");
        }
    }
}

/// A debt that is larger than a smaller burst may owe is not forgiven because somebody asks under the smaller
/// burst.
pub async fn a_smaller_burst_that_is_asked_forgives_nothing<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for (large, small) in [
        (Quota::per_second(10).burst(1_000), Quota::per_second(10).burst(20)),
        (Quota::per_second(7).burst(1_000), Quota::per_second(7).burst(20)),
        (Quota::leaky_bucket(10, SECOND).capacity(1_000), Quota::leaky_bucket(10, SECOND).capacity(20)),
    ] {
        for debit in [1, 500, 1_000] {
            let mut caller = bench.caller(large);
            caller.reset().await;
            caller.take(1_000).await;
            caller.debit(debit).await;
            let told = wait(&caller.charge(1).await);
            for _ in 0..3 {
                caller.quota = small;
                let locked = wait(&caller.charge(1).await);
                assert!(locked <= longest_lock(&small), "{large}, then {small}: {locked:?}");
                caller.quota = large;
                assert_eq!(wait(&caller.charge(1).await), told, "{large}, then {small}");
            }
            bench.advance(told - MICRO).await;
            assert!(!caller.charge(1).await.is_admitted(), "{large}, then {small}: early");
            bench.advance(MICRO).await;
            assert!(caller.charge(1).await.is_admitted(), "{large}, then {small}: in time");
        }
    }
}

/// A refund pays off a debt first, and never lifts a budget above its quota.
pub async fn giving_back_pays_off<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in quotas().filter(|quota| quota.algorithm() != Algorithm::LeakyBucket) {
        let caller = bench.caller(quota);
        let receipt = Some(caller.take(10).await);
        caller.debit(3).await;
        caller.refund(2, receipt).await;
        assert_eq!(caller.remaining().await, 0, "{quota}");
        caller.refund(3, receipt).await;
        assert_eq!(caller.remaining().await, 2, "{quota}");
        caller.refund(u32::MAX, None).await;
        assert_eq!(caller.drain().await, 10, "{quota}");
    }
}

/// A cost of zero is admitted whatever is owed, and pays nothing off.
pub async fn what_costs_nothing_is_admitted_in_debt<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in quotas() {
        let caller = bench.caller(quota);
        caller.debit(17).await;
        let before = caller.peek(1).await;
        assert!(caller.charge(0).await.is_admitted(), "{quota}");
        caller.debit(0).await;
        assert_eq!(caller.peek(1).await, before, "{quota}");
    }
}

/// A request of several rules is denied if one is in debt, and charges none.
pub async fn a_debt_denies_a_request_of_several_rules<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in quotas() {
        let owing = bench.caller(quota);
        let other = bench.caller_under(bench.rule(&format!("other-{}", quota.algorithm())), quota);
        owing.debit(12).await;
        let told = owing.peek(1).await;
        let decision = bench.charge(&[other.cost(1), owing.cost(1)]).await;
        assert!(!decision.is_admitted(), "{quota}");
        assert_eq!(decision.outcome(owing.rule.as_str()), Some(&told), "{quota}");
        assert_eq!(other.remaining().await, 10, "{quota}");
    }
}

/// A debit takes place even if its future is dropped before it was ever polled; several in one call are all
/// made.
pub async fn a_debit_takes_place_though_nobody_waits_for_it<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(10, MINUTE) {
        let caller = bench.caller(quota);
        let other = bench.caller(quota).with_key("bob");
        drop(bench.store.debit(&[caller.cost(4), other.cost(1), caller.cost(3)].map(Debit::new)));
        // What is handed over later is done later, so when the next debit is done, this one is done, too.
        caller.debit(1).await;
        assert_eq!((caller.remaining().await, other.remaining().await), (2, 9), "{quota}");
    }
}

/// An invalid quota takes nothing, and forgets nothing.
pub async fn a_quota_that_makes_no_sense_is_not_debited<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let rule = bench.rule("nonsense");
    for quota in each(10, MINUTE) {
        let caller = bench.caller_under(rule, quota);
        caller.reset().await;
        caller.take(4).await;
        bench.caller_under(rule, Quota::per_minute(0)).debit(9).await;
        assert_eq!(caller.drain().await, 6, "{quota}");
    }
}
