use super::*;

/// Brings a counter into a state with a history: charges here and there, the last one just now.
fn busy(quota: Quota) -> Subject {
    let mut subject = Subject::new(quota).at(Duration::from_micros(7_777_777));
    for (pause, cost) in [(11, 3), (2_000_003, 1), (5_000_001, 4), (1, 2), (9_999_999, 1), (1_234_567, 7)] {
        subject.advance(Duration::from_micros(pause));
        subject.charge(cost);
    }
    subject.drain();
    subject
}

fn quotas() -> impl Iterator<Item = Quota> {
    let plain = [each(9, 10 * SECOND), each(7, SECOND), each(8, 60 * SECOND)];
    plain.into_iter().flatten().chain([
        Quota::per_second(3).burst(8),
        Quota::per_second(999_983).burst(9),
        Quota::leaky_bucket(3, SECOND).capacity(8),
        Quota::leaky_bucket(3, 7 * MICRO * 1_000).capacity(9),
    ])
}

#[test]
fn waiting_as_long_as_was_said_succeeds_and_a_microsecond_less_fails() {
    for quota in quotas() {
        for cost in 1..=quota.max() {
            let subject = busy(quota);
            let denied = subject.clone().charge(cost);
            assert!(!denied.is_admitted(), "{quota}");

            let mut early = subject.clone();
            early.advance(wait(&denied) - MICRO);
            assert!(!early.charge(cost).is_admitted(), "{quota}: {cost} a microsecond early");

            let mut in_time = subject;
            in_time.advance(wait(&denied));
            assert!(in_time.charge(cost).is_admitted(), "{quota}: {cost} in time");
        }
    }
}

#[test]
fn what_is_announced_to_grow_and_to_be_whole_does_so_then_and_not_before() {
    for quota in quotas() {
        let subject = busy(quota);
        let outcome = subject.peek(1);
        let remaining_after = |wait: Duration| {
            let mut later = subject.clone();
            later.advance(wait);
            later.remaining()
        };
        let (refill, reset) = (outcome.refill_after(), outcome.reset_after());
        assert_eq!(remaining_after(refill - MICRO), outcome.remaining(), "{quota}");
        assert!(remaining_after(refill) > outcome.remaining(), "{quota}");
        assert!(remaining_after(reset - MICRO) < quota.max(), "{quota}");
        assert_eq!(remaining_after(reset), quota.max(), "{quota}");
        assert!(reset <= quota.full_refill(), "{quota}");
    }
}

#[test]
fn a_cost_above_what_the_quota_can_hold_is_never() {
    for quota in quotas() {
        for cost in [quota.max() + 1, u32::MAX] {
            let mut subject = Subject::new(quota);
            assert_eq!(subject.charge(cost).retry(), Some(Retry::Never), "{quota}");
            assert_eq!(subject.drain(), quota.max(), "{quota}: and costs nothing");
            assert_eq!(subject.peek(cost).retry(), Some(Retry::Never), "{quota}");
        }
    }
}

#[test]
fn a_denial_takes_nothing_and_a_peek_says_what_a_charge_would() {
    for quota in quotas() {
        let mut subject = busy(quota);
        subject.advance(quota.period() / 3);
        for cost in [0, 1, 2, quota.max(), quota.max() + 1] {
            let before = subject.clone();
            let (peek, charge) = (subject.peek(cost), subject.charge(cost));
            assert_eq!(peek.is_admitted(), charge.is_admitted(), "{quota} {cost}");
            assert_eq!((peek.retry(), peek.delay()), (charge.retry(), charge.delay()), "{quota} {cost}");
            if !charge.is_admitted() {
                assert_eq!(peek, charge, "{quota}");
                assert_eq!(subject.peek(1), before.peek(1), "{quota}");
            }
        }
    }
}

#[test]
fn a_quota_that_makes_no_sense_admits_nothing_and_forgets_nothing() {
    for quota in each(5, MINUTE) {
        for fault in [
            Quota::per_second(0),
            Quota::fixed_window(5, Duration::MAX),
            Quota::sliding_window(5, Duration::MAX),
            Quota::sliding_log(5, Duration::MAX),
            Quota::sliding_log(5, MINUTE).burst(5),
            Quota::fixed_window(5, Duration::ZERO),
        ] {
            let mut subject = Subject::new(quota);
            subject.take(3);
            subject.quota = fault;
            assert_eq!(subject.peek(1).retry(), Some(Retry::Never), "{quota} {fault:?}");
            assert_eq!(subject.charge(1).retry(), Some(Retry::Never), "{quota} {fault:?}");
            subject.quota = quota;
            assert_eq!(subject.drain(), 2, "{quota} {fault:?}");
        }
    }
}
