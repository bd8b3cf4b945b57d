use super::*;

#[test]
fn a_receipt_gives_its_charge_back() {
    for quota in each(10, MINUTE) {
        let mut subject = Subject::new(quota);
        subject.take(4);
        let receipt = subject.take(5);
        subject.refund(5, Some(receipt));
        assert_eq!(subject.remaining(), 6, "{quota}");
        // Now in several parts.
        let receipt = subject.take(6);
        subject.refund(2, Some(receipt));
        assert_eq!(subject.remaining(), 2, "{quota}");
    }
}

#[test]
fn giving_back_without_a_receipt_takes_back_what_was_charged_last_except_from_a_queue() {
    for quota in each(10, MINUTE) {
        let mut subject = Subject::new(quota);
        subject.take(9);
        subject.refund(4, None);
        let expected = if quota.algorithm() == Algorithm::LeakyBucket { 1 } else { 5 };
        assert_eq!(subject.remaining(), expected, "{quota}");
    }
}

#[test]
fn giving_back_never_lifts_a_budget_above_its_quota() {
    for quota in each(10, MINUTE) {
        for cost in [3, 10, 11, u32::MAX] {
            let mut subject = Subject::new(quota);
            subject.refund(cost, None);
            assert_eq!(subject.drain(), 10, "{quota}");
            subject = Subject::new(quota);
            let receipt = subject.take(3);
            subject.refund(cost, Some(receipt));
            subject.refund(cost, Some(receipt));
            subject.refund(cost, None);
            assert_eq!(subject.drain(), 10, "{quota}");
        }
    }
}

#[test]
fn a_charge_whose_window_is_over_is_not_given_back() {
    for quota in each(10, MINUTE) {
        let mut subject = Subject::new(quota);
        let receipt = subject.take(6);
        subject.advance(quota.full_refill());
        subject.take(8);
        let before = subject.remaining();
        subject.refund(6, Some(receipt));
        assert_eq!(subject.remaining(), before, "{quota}");
    }
}

#[test]
fn a_sliding_window_gives_back_to_the_window_that_was_charged() {
    let mut subject = Subject::new(Quota::sliding_window(100, MINUTE));
    let receipt = subject.take(80);
    subject = subject.at(90 * SECOND);
    subject.take(30);
    assert_eq!(subject.remaining(), 30);
    subject.refund(40, Some(receipt));
    // 40 of the previous window count for 20 now; the current window's 30 are untouched.
    assert_eq!(subject.remaining(), 50);
}

#[test]
fn a_log_strikes_the_admissions_of_the_receipts_moment() {
    let mut subject = Subject::new(Quota::sliding_log(10, MINUTE));
    subject.take(2);
    subject.advance(10 * SECOND);
    let receipt = subject.take(3);
    subject.advance(10 * SECOND);
    subject.take(5);
    subject.refund(9, Some(receipt));
    assert_eq!(subject.remaining(), 3);
    // The first two leave when they would have left anyway.
    assert_eq!(subject.peek(4).retry(), Some(Retry::After(40 * SECOND)));
}

#[test]
fn only_the_last_in_line_gives_its_place_in_a_queue_back() {
    let mut subject = Subject::new(Quota::leaky_bucket(1, SECOND).capacity(5));
    let receipts: Vec<_> = (0..4).map(|_| subject.take(1)).collect();
    for receipt in &receipts[..3] {
        subject.refund(1, Some(*receipt));
        assert_eq!(subject.remaining(), 1);
    }
    // From the end, each becomes the last in its turn.
    for (left, receipt) in receipts.iter().rev().enumerate() {
        subject.refund(1, Some(*receipt));
        assert_eq!(subject.remaining(), 2 + left as u32);
    }
}

#[test]
fn who_has_left_a_queue_keeps_its_distance_from_the_next() {
    for (limit, period) in [(1, SECOND), (3, SECOND), (7, SECOND)] {
        for cost in [1, 2, 3] {
            let mut subject = Subject::new(Quota::leaky_bucket(limit, period).capacity(9));
            let receipt = subject.take(cost);
            subject.advance(MICRO);
            subject.refund(cost, Some(receipt));
            // A microsecond has passed, and a part of one may be missing.
            let distance = subject.charge(1).delay() + MICRO;
            assert!((period / limit..period / limit + 2 * MICRO).contains(&distance), "{cost}: {distance:?}");
        }
    }
}

#[test]
fn a_place_that_was_given_back_goes_to_the_next_with_the_same_delay() {
    for (limit, period) in [(1, SECOND), (3, SECOND), (7, SECOND)] {
        let mut subject = Subject::new(Quota::leaky_bucket(limit, period).capacity(9));
        subject.take(1);
        subject.take(1);
        subject.advance(Duration::from_micros(1_234));
        let first = subject.charge(1);
        subject.advance(Duration::from_micros(4_321));
        subject.refund(1, Some(Receipt::new(START.saturating_add(MICRO * 1_234), first.reset_after())));
        let second = subject.charge(1);
        assert_eq!(second.delay() + MICRO * 4_321, first.delay());
    }
}

#[test]
fn what_has_come_back_by_itself_is_not_given_back_again() {
    let mut subject = Subject::new(Quota::per_second(1).burst(10));
    let receipt = subject.take(10);
    subject.advance(9 * SECOND);
    subject.take(9);
    subject.advance(SECOND - Duration::from_millis(100));
    // A tenth of a unit is still missing.
    subject.refund(10, Some(receipt));
    assert_eq!(subject.remaining(), 1);
}
