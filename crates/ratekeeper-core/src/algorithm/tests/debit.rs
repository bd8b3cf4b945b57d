use super::*;
use crate::codec;

/// One quota of each algorithm, and buckets whose rate has fractions.
fn quotas() -> Vec<Quota> {
    let mut quotas = each(100, MINUTE).to_vec();
    quotas.extend(each(7, SECOND));
    quotas.extend([Quota::per_second(7).burst(20), Quota::leaky_bucket(3, SECOND).capacity(11)]);
    quotas
}

fn is_bucket(quota: &Quota) -> bool {
    matches!(quota.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket)
}

#[test]
fn the_order_of_charges_debits_and_refunds_does_not_matter() {
    for quota in each(100, MINUTE).into_iter().filter(|quota| quota.algorithm() != Algorithm::LeakyBucket) {
        for receipts in [false, true] {
            let mut debit_first = Subject::new(quota);
            debit_first.take(50);
            let receipt = debit_first.take(50);
            let mut refund_first = debit_first.clone();
            let receipt = receipts.then_some(receipt);
            debit_first.debit(30);
            debit_first.refund(40, receipt);
            refund_first.refund(40, receipt);
            refund_first.debit(30);
            assert_eq!((debit_first.remaining(), refund_first.remaining()), (10, 10), "{quota}");
            assert_eq!(debit_first.peek(50), refund_first.peek(50), "{quota}");
        }
    }
}

#[test]
fn a_debit_that_fits_is_a_charge() {
    for quota in quotas() {
        let mut charged = Subject::new(quota);
        let mut debited = charged.clone();
        for cost in [1, 2, quota.max() - 3] {
            charged.take(cost);
            debited.debit(cost);
            assert_eq!(charged.counter, debited.counter, "{quota}");
        }
    }
}

#[test]
fn a_debt_leaves_nothing_and_its_waits_are_exact() {
    for quota in quotas() {
        for (charged, debited) in [(0, 1), (1, quota.max()), (quota.max(), 1), (quota.max() - 1, quota.max())]
        {
            let mut subject = Subject::new(quota);
            subject.take(charged);
            subject.advance(MICRO * 1_234);
            subject.debit(debited);
            subject.advance(MICRO * 4_321);
            for cost in [1, 2, quota.max()] {
                let before = subject.counter.clone();
                let told = subject.charge(cost);
                if told.is_admitted() {
                    assert!(charged + debited < quota.max(), "{quota}");
                    continue;
                }
                if charged + debited > quota.max() + 1 {
                    assert_eq!(told.remaining(), 0, "{quota}");
                }
                assert_eq!(subject.counter, before, "a denial changes nothing: {quota}");
                assert_eq!(subject.peek(cost), told, "{quota}");
                let wait = wait(&told);
                let mut early = subject.clone();
                early.advance(wait - MICRO);
                assert!(!early.charge(cost).is_admitted(), "{quota} {cost} {wait:?}");
                let mut in_time = subject.clone();
                in_time.advance(wait);
                assert!(in_time.charge(cost).is_admitted(), "{quota} {cost} {wait:?}");
            }
            let told = subject.peek(1);
            let mut before = subject.clone();
            before.advance(told.refill_after() - MICRO);
            subject.advance(told.refill_after());
            assert_eq!(before.remaining(), told.remaining(), "{quota}");
            assert!(subject.remaining() > told.remaining(), "{quota}");
        }
    }
}

#[test]
fn a_reset_and_an_expiry_include_the_debt() {
    for quota in quotas() {
        let mut subject = Subject::new(quota);
        subject.take(quota.max());
        subject.debit(quota.max() / 2);
        let told = subject.peek(1);
        let expires = subject.counter.expires_at();
        assert_eq!(expires.saturating_since(subject.now), told.reset_after(), "{quota}");
        subject.advance(told.reset_after() - MICRO);
        assert_ne!(subject.peek(1).reset_after(), Duration::ZERO, "{quota}");
        subject.advance(MICRO);
        assert_eq!(subject.drain(), quota.max(), "{quota}");
    }
}

#[test]
fn nobody_is_locked_for_longer_than_two_full_refills() {
    for quota in quotas() {
        let longest = if is_bucket(&quota) { 2 } else { 1 } * quota.full_refill();
        let mut subject = Subject::new(quota);
        for cost in [1, quota.max(), u32::MAX, u32::MAX] {
            subject.debit(cost);
        }
        assert!(wait(&subject.peek(quota.max())) <= longest, "{quota}");
        // Nor if the clock is set back to before all of it; except that it could be a reservation then.
        let longest = if is_bucket(&quota) { longest.max(quota.full_refill() + MINUTE) } else { longest };
        subject.step_back(10 * quota.full_refill());
        let told = wait(&subject.charge(quota.max()));
        assert!(told <= longest, "{quota}");
        subject.advance(told);
        assert!(subject.charge(quota.max()).is_admitted(), "{quota}");
    }
}

#[test]
fn a_step_back_cuts_a_budget_that_has_paid_off_to_one_full_refill() {
    for quota in quotas().into_iter().filter(is_bucket) {
        let mut subject = Subject::new(quota);
        subject.debit(quota.max() + 1);
        subject.advance(2 * wait(&subject.peek(1)));
        // The next charge that is admitted finds that nothing is owed any more.
        subject.take(1);
        subject.step_back(3 * quota.full_refill());
        assert_eq!(subject.peek(1).reset_after(), quota.full_refill(), "{quota}");
    }
}

#[test]
fn another_rate_or_algorithm_forgives_the_debt() {
    for old in each(10, MINUTE) {
        for new in each(7, SECOND) {
            let mut subject = Subject::new(old);
            subject.debit(20);
            subject.quota = new;
            assert!(!subject.charge(1).is_admitted(), "{old} {new}");
            let told = wait(&subject.charge(new.max()));
            assert!(told <= new.full_refill(), "{old} {new}");
        }
    }
}

#[test]
fn another_burst_at_the_same_rate_keeps_what_it_holds_of_the_debt() {
    let mut subject = Subject::new(Quota::per_minute(60).burst(10));
    subject.debit(15);
    subject.quota = subject.quota.burst(20);
    assert_eq!(subject.remaining(), 5);
    subject.quota = subject.quota.burst(5);
    assert_eq!(wait(&subject.charge(1)), SECOND);
    // The state of the quota before is not cut.
    subject.quota = subject.quota.burst(10);
    assert_eq!(wait(&subject.charge(1)), 6 * SECOND);
}

#[test]
fn what_costs_nothing_is_admitted_in_debt_and_changes_nothing() {
    for quota in quotas() {
        let mut subject = Subject::new(quota);
        subject.debit(2 * quota.max());
        let before = subject.counter.clone();
        assert!(subject.charge(0).is_admitted() && subject.peek(0).is_admitted(), "{quota}");
        subject.debit(0);
        assert_eq!(subject.counter, before, "{quota}");
    }
}

#[test]
fn a_quota_that_makes_no_sense_takes_nothing() {
    let mut subject = Subject::new(Quota::per_minute(10));
    subject.take(4);
    subject.quota = Quota::per_minute(0);
    subject.debit(100);
    subject.quota = Quota::per_minute(10);
    assert_eq!(subject.remaining(), 6);
}

#[test]
fn giving_back_pays_off_and_never_lifts_above_the_quota() {
    for quota in quotas().into_iter().filter(|quota| quota.algorithm() != Algorithm::LeakyBucket) {
        let mut subject = Subject::new(quota);
        let receipt = subject.take(quota.max());
        subject.debit(3);
        subject.refund(2, Some(receipt));
        assert_eq!(subject.remaining(), 0, "{quota}");
        subject.refund(3, Some(receipt));
        assert_eq!(subject.remaining(), 2, "{quota}");
        subject.refund(u32::MAX, None);
        assert_eq!(subject.drain(), quota.max(), "{quota}");
    }
}

#[test]
fn bytes_tell_that_a_counter_owes() {
    for quota in quotas() {
        let mut subject = Subject::new(quota);
        subject.debit(quota.max());
        let even = codec::encode(&subject.counter);
        subject.debit(1);
        let owing = codec::encode(&subject.counter);
        assert_eq!(codec::decode(&owing), Some(subject.counter), "{quota}");
        if is_bucket(&quota) {
            assert_eq!(even.len(), owing.len(), "{quota}");
        }
    }
}

#[test]
fn the_slowest_of_budgets_owes_what_can_be_told() {
    // It takes 137 years to be full, and a wait of more than 142 cannot be reported.
    let mut subject = Subject::new(Quota::token_bucket(10, 365 * 10 * crate::DAY).burst(137));
    subject.debit(137);
    let told = wait(&subject.peek(1));
    subject.debit(u32::MAX);
    assert!(wait(&subject.peek(1)) > told);
    assert_eq!(subject.peek(1).reset_after(), Duration::from_micros(1 << 52));
    assert_eq!(codec::decode(&codec::encode(&subject.counter)), Some(subject.counter));
}

/// A window that counts as much as the type can hold, after another one that did.
#[test]
fn a_debt_that_is_larger_than_any_limit_refills_when_it_is_paid_off() {
    let mut subject = Subject::new(Quota::sliding_window(u32::MAX, MINUTE));
    subject.take(u32::MAX);
    subject.advance(MINUTE + 10 * SECOND);
    subject.debit(u32::MAX);
    let refill = subject.peek(1).refill_after();
    subject.advance(refill - MICRO);
    assert_eq!(subject.remaining(), 0);
    subject.advance(MICRO);
    assert!(subject.remaining() > 0, "{refill:?}");
}
