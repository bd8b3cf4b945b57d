use super::*;

const STEPS: [Duration; 6] = [
    MICRO,
    Duration::from_millis(333),
    SECOND,
    Duration::from_secs(59),
    Duration::from_secs(61),
    Duration::from_secs(86_400),
];

#[test]
fn a_clock_that_steps_back_frees_nothing() {
    for quota in each(10, MINUTE) {
        for step in STEPS {
            for used in 1..=10 {
                let mut subject = Subject::new(quota).at(100 * SECOND);
                subject.take(used);
                subject.advance(SECOND);
                let before = subject.remaining();
                subject.step_back(step);
                assert!(subject.remaining() <= before, "{quota}, {used} used, {step:?} back");
            }
        }
    }
}

#[test]
fn a_window_that_had_nearly_faded_counts_again_when_the_clock_steps_back_into_it() {
    let mut subject = Subject::new(Quota::sliding_window(100, MINUTE));
    subject.take(100);
    subject = subject.at(114 * SECOND);
    assert_eq!(subject.drain(), 90);
    // Back to where the same share of a window is left, or less, in a window that was full.
    subject = subject.at(57 * SECOND);
    assert_eq!(subject.drain(), 0);
}

#[test]
fn a_clock_that_steps_back_locks_nobody_for_longer_than_a_full_refill() {
    for quota in each(10, MINUTE).into_iter().chain(each(7, SECOND)) {
        for step in STEPS {
            let mut subject = Subject::new(quota).at(1_000_000 * SECOND);
            subject.drain();
            subject.step_back(step);
            // Like a caller that comes back when told to.
            let stepped_at = subject.now;
            let whole = stepped_at.saturating_add(quota.full_refill());
            while let Some(retry) = subject.charge(quota.max()).retry() {
                subject.advance(retry.after().unwrap());
                assert!(subject.now <= whole, "{quota}, {step:?} back, {:?}", subject.now);
            }
        }
    }
}

#[test]
fn a_wait_that_is_announced_after_a_step_back_is_exact() {
    for quota in each(10, MINUTE) {
        for step in STEPS {
            let mut subject = Subject::new(quota).at(1_000_000 * SECOND);
            subject.drain();
            subject.step_back(step);
            let denied = subject.charge(4);
            let mut early = subject.clone();
            early.advance(wait(&denied) - MICRO);
            assert!(!early.charge(4).is_admitted(), "{quota}, {step:?} back");
            subject.advance(wait(&denied));
            assert!(subject.charge(4).is_admitted(), "{quota}, {step:?} back");
        }
    }
}

#[test]
fn a_counter_expires_when_it_is_no_different_from_a_new_one() {
    for quota in each(10, MINUTE) {
        let mut subject = Subject::new(quota).at(13 * SECOND);
        subject.take(7);
        let expires_at = subject.counter.expires_at();
        assert_eq!(expires_at.saturating_since(subject.now), subject.peek(1).reset_after(), "{quota}");
        subject.now = expires_at;
        assert_eq!(subject.peek(3), Counter::new(&quota).peek(&quota, 3, expires_at), "{quota}");
    }
}

#[test]
fn all_works_at_the_epoch() {
    for quota in each(10, MINUTE) {
        let mut subject = Subject::new(quota);
        subject.now = Timestamp::UNIX_EPOCH;
        assert_eq!(subject.drain(), 10, "{quota}");
        subject.advance(wait(&subject.peek(1)));
        assert!(subject.charge(1).is_admitted(), "{quota}");
    }
}

#[test]
fn a_clock_that_trembles_on_the_edge_of_a_window_frees_nothing() {
    for quota in each(20, MINUTE) {
        // Windows start at multiples of a minute.
        let mut subject = Subject::new(quota).at(MINUTE - MICRO);
        let mut admitted = 0;
        for _ in 0..5 {
            admitted += subject.drain();
            subject.advance(2 * MICRO);
            admitted += subject.drain();
            subject.step_back(2 * MICRO);
        }
        // The fixed window restarts once, at its edge.
        let most = if quota.algorithm() == Algorithm::FixedWindow { 40 } else { 20 };
        assert!(admitted <= most, "{quota}: {admitted}");
    }
}

#[test]
fn a_fixed_window_is_not_begun_twice_when_the_clock_steps_back_over_its_edge() {
    let mut subject = Subject::new(Quota::fixed_window(20, MINUTE)).at(MINUTE + SECOND);
    subject.take(20);
    subject.step_back(2 * SECOND);
    assert_eq!(subject.remaining(), 0);
    subject.advance(2 * SECOND);
    assert_eq!(subject.remaining(), 0);
}

/// Only a custom clock gets there.
#[test]
fn nothing_panics_at_the_end_of_time() {
    for quota in each(10, MINUTE) {
        for before_the_end in [0, 1, 59_999_999, 60_000_000, 120_000_000] {
            let mut subject = Subject::new(quota);
            subject.take(3);
            subject.now = Timestamp::from_micros(u64::MAX - before_the_end);
            for cost in [0, 1, 20, 9] {
                subject.peek(cost);
                subject.charge(cost);
            }
            subject.refund(1, None);
            subject.debit(20);
            subject.counter.settle(&quota, subject.now);
            let _ = subject.counter.expires_at();
        }
    }
}
