//! Debits and debts, for all algorithms.

use proptest::prelude::*;
use ratekeeper_core::{Algorithm, Charge, Quota, Receipt, Timestamp};

use crate::support::{MICRO, Step, Subject, cases, small_quota, steps};

/// Something done to a budget, in the place of a charge.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Charge,
    Debit,
    Refund,
}

fn deeds(most: usize) -> impl Strategy<Value = Vec<(Step, Deed)>> {
    let deed = prop_oneof![3 => Just(Deed::Charge), 2 => Just(Deed::Debit), 1 => Just(Deed::Refund)];
    steps(most).prop_flat_map(move |steps| {
        let deeds = proptest::collection::vec(deed.clone(), steps.len());
        deeds.prop_map(move |deeds| steps.iter().copied().zip(deeds).collect())
    })
}

fn with_deeds(quota: Quota, deeds: &[(Step, Deed)]) -> Subject {
    let mut subject = Subject::new(quota);
    for (step, deed) in deeds {
        subject.now += step.pause(&quota);
        let cost = step.cost(&quota);
        match deed {
            Deed::Charge => drop(subject.charge(cost)),
            Deed::Debit => subject.debit(cost),
            Deed::Refund => subject.refund(cost, None),
        }
    }
    subject
}

fn longest_lock(quota: &Quota) -> std::time::Duration {
    match quota.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => 2 * quota.full_refill(),
        _ => quota.full_refill(),
    }
}

proptest! {
    #![proptest_config(cases(512))]

    /// Whatever was charged, debited and given back, a wait is exact, and a denial changes nothing.
    #[test]
    fn waits_are_exact_whatever_is_owed(quota in small_quota(), deeds in deeds(30), cost in 1_u32..40) {
        let mut subject = with_deeds(quota, &deeds);
        let cost = cost.min(quota.max());
        let untouched = subject.clone();
        let told = subject.charge(cost);
        if let Some(retry) = told.retry() {
            prop_assert_eq!(untouched.peek(cost), subject.peek(cost));
            let wait = retry.after().expect("it fits at some time");
            prop_assert!(wait <= longest_lock(&quota));
            prop_assert!(!subject.clone().after(wait - MICRO).charge(cost).is_admitted());
            prop_assert!(subject.clone().after(wait).charge(cost).is_admitted());
        }
        let told = subject.peek(1);
        prop_assert_eq!(subject.remaining_in(told.reset_after()), quota.max());
        if told.remaining() < quota.max() {
            prop_assert!(subject.remaining_in(told.refill_after()) > told.remaining());
            prop_assert!(subject.remaining_in(told.refill_after() - MICRO) <= told.remaining());
        }
    }

    /// At one moment, what remains is the quota less everything that was taken and not given back, in any
    /// order. (As long as this is below what a bucket can owe; and a leaky bucket gives back only the place
    /// taken last.)
    #[test]
    fn the_order_of_settlements_does_not_matter(
        quota in small_quota().prop_filter("a queue gives places back", |quota| quota.algorithm() != Algorithm::LeakyBucket),
        history in steps(20),
        settlements in proptest::collection::vec((any::<bool>(), 0_u32..40), 1..12),
        with_receipt: bool,
    ) {
        let mut subject = Subject::with_history(quota, &history);
        // What is given back was reserved before, and no more than that.
        let reserved = subject.remaining();
        let outcome = subject.charge(reserved);
        prop_assert!(outcome.is_admitted());
        let receipt = Receipt::new(Timestamp::from_micros(subject.now), outcome.reset_after()).delay(outcome.delay());
        let (mut back, mut debits) = (0, 0);
        let settlements: Vec<_> = settlements.into_iter().filter(|(is_debit, cost)| {
            let sum = if *is_debit { &mut debits } else { &mut back };
            let most = if *is_debit { quota.max() } else { reserved };
            let fits = *sum + *cost <= most;
            *sum += if fits { *cost } else { 0 };
            fits
        }).collect();
        let settle = |subject: &mut Subject, (is_debit, cost): (bool, u32)| {
            if is_debit { subject.debit(cost) } else { subject.refund(cost, with_receipt.then_some(receipt)) }
        };
        let mut reverse = subject.clone();
        settlements.iter().for_each(|one| settle(&mut subject, *one));
        settlements.iter().rev().for_each(|one| settle(&mut reverse, *one));
        prop_assert_eq!(subject.peek(1), reverse.peek(1));
        prop_assert_eq!(subject.remaining(), back.saturating_sub(debits));
        for share in [1, 7, 64, 100] {
            let wait = quota.full_refill() * share / 64;
            prop_assert_eq!(subject.remaining_in(wait), reverse.remaining_in(wait));
        }
    }

    /// Whatever the clock and the quota do, the budget never exceeds the quota, and is never locked for
    /// longer than two full refills or the longest reservation.
    #[test]
    fn no_debt_locks_for_ever(quota in small_quota(), new in small_quota(), deeds in deeds(20), back in 0_u64..1 << 44) {
        let mut subject = with_deeds(quota, &deeds);
        subject.now -= back;
        prop_assert!(subject.remaining() <= quota.max());
        let mut changed = subject.clone();
        changed.quota = new;
        // What a bucket owes could be a reservation.
        let longest = longest_lock(&quota).max(quota.full_refill() + Charge::MAX_WAIT);
        prop_assert!(subject.time_locked(quota.max()) <= longest);
        // A quota that counts the same keeps all of it, any other what it holds.
        let same = quota.algorithm() == new.algorithm() && quota.rate() == new.rate() && quota.max() == new.max();
        let longest = if same { longest } else { new.full_refill() };
        prop_assert!(changed.time_locked(new.max()) <= longest);
    }

    /// The bytes of a counter describe the same counter, whatever it owes.
    #[test]
    fn bytes_tell_what_is_owed(quota in small_quota(), deeds in deeds(20)) {
        let subject = with_deeds(quota, &deeds);
        prop_assert_eq!(subject.rewritten().peek(1), subject.peek(1));
    }
}
