use super::*;

/// A sliding window of 100 a minute with these counts, `elapsed` seconds into the current window.
fn sliding(previous: u32, current: u32, elapsed: u64) -> Subject {
    let mut subject = Subject::new(Quota::sliding_window(100, MINUTE));
    subject.now = START.saturating_sub(MINUTE);
    subject.take(previous);
    // The current window's charges come when the previous one has faded enough for them to fit; if that
    // is not before `elapsed`, they were made under a larger limit.
    subject.quota = Quota::sliding_window(1_000, MINUTE);
    subject.now = START;
    subject.take(current);
    subject.quota = Quota::sliding_window(100, MINUTE);
    subject.at(Duration::from_secs(elapsed))
}

#[test]
fn sliding_window_84_before_and_36_now_after_15_s_is_99() {
    let mut subject = sliding(84, 36, 15);
    assert_eq!(subject.remaining(), 1);
    assert!(subject.charge(1).is_admitted());
    assert!(!subject.charge(1).is_admitted());
}

#[test]
fn sliding_window_80_before_and_30_now_after_45_s_is_50() {
    assert_eq!(sliding(80, 30, 45).remaining(), 50);
    assert_eq!(sliding(80, 30, 45).drain(), 50);
}

#[test]
fn sliding_window_85_before_and_40_now_after_15_s_is_over_the_limit() {
    let mut subject = sliding(85, 40, 15);
    let denied = subject.charge(1);
    assert!(!denied.is_admitted());
    // 103.75: one fits when 85 × (1 − t/60) + 40 + 1 ≤ 100, at t = 18.352942.
    assert_eq!(wait(&denied), Duration::from_micros(3_352_942));
}

#[test]
fn sliding_window_100_before_and_95_now_after_1_s_is_far_over_the_limit() {
    let mut subject = sliding(100, 95, 1);
    let denied = subject.charge(1);
    assert!(!denied.is_admitted());
    // 193.3: one fits when 100 × (1 − t/60) + 95 + 1 ≤ 100, at t = 57.6.
    assert_eq!(wait(&denied), Duration::from_millis(56_600));
}

#[test]
fn an_empty_bucket_of_100_a_minute_holds_50_after_30_s() {
    let mut subject = Subject::new(Quota::per_minute(100));
    subject.take(100);
    subject.advance(30 * SECOND);
    assert_eq!(subject.remaining(), 50);
}

#[test]
fn a_bucket_of_50_at_10_a_second_holds_15_a_second_after_45_were_taken() {
    let mut subject = Subject::new(Quota::per_second(10).burst(50));
    subject.take(45);
    subject.advance(SECOND);
    assert_eq!(subject.drain(), 15);
}

#[test]
fn a_bucket_of_10_at_5_a_second_passes_ten_and_one_more_after_a_fifth_of_a_second() {
    let mut subject = Subject::new(Quota::per_second(5).burst(10));
    assert_eq!(subject.drain(), 10);
    assert_eq!(wait(&subject.charge(1)), Duration::from_millis(200));
    subject.advance(Duration::from_millis(200));
    assert_eq!(subject.drain(), 1);
}

#[test]
fn an_hour_of_idling_fills_a_bucket_to_its_capacity_and_no_further() {
    let mut subject = Subject::new(Quota::per_second(5).burst(10));
    subject.take(10);
    subject.advance(60 * MINUTE);
    assert_eq!(subject.drain(), 10);
}

#[test]
fn a_leaky_bucket_of_3_passes_three_of_five_a_second_apart() {
    let mut subject = Subject::new(Quota::leaky_bucket(1, SECOND).capacity(3));
    let outcomes: Vec<_> = (0..5).map(|_| subject.charge(1)).collect();
    let delays: Vec<_> = outcomes.iter().filter(|o| o.is_admitted()).map(|o| o.delay().as_micros()).collect();
    assert_eq!(delays, [0, 1_000_000, 2_000_000]);
    assert!(outcomes[3..].iter().all(|outcome| !outcome.is_admitted() && wait(outcome) == SECOND));
}

#[test]
fn only_a_fixed_window_passes_twice_its_limit_around_an_edge() {
    for quota in each(20, MINUTE) {
        let mut subject = Subject::new(quota).at(51 * SECOND);
        let before = subject.drain();
        subject = subject.at(60 * SECOND);
        let total = before + subject.drain();
        let allowed = match quota.algorithm() {
            Algorithm::FixedWindow => 40,
            // What 9 s at 20 a minute give back.
            Algorithm::TokenBucket | Algorithm::LeakyBucket => 23,
            Algorithm::SlidingWindow | Algorithm::SlidingLog => 20,
        };
        assert_eq!((before, total), (20, allowed), "{quota}");
    }
}

#[test]
fn ten_million_a_second_and_one_in_thirty_days_do_not_drift() {
    let mut fast = Subject::new(Quota::per_second(10_000_000).burst(10));
    let admitted: u32 = (0..1_000)
        .map(|_| {
            fast.advance(MICRO);
            fast.drain()
        })
        .sum();
    assert_eq!(admitted, 10_000);

    let month = Duration::from_secs(30 * 86_400);
    let mut slow = Subject::new(Quota::token_bucket(1, month));
    slow.take(1);
    for _ in 0..12 {
        slow.advance(month - MICRO);
        assert_eq!(slow.drain(), 0);
        slow.advance(MICRO);
        assert_eq!(slow.drain(), 1);
    }
}

#[test]
fn rates_that_do_not_divide_a_second_do_not_drift() {
    for rate in [3, 7, 999_983, 9_999_999] {
        let mut subject = Subject::new(Quota::per_second(rate));
        subject.take(rate);
        let (mut admitted, mut elapsed) = (0_u64, 0_u64);
        for step in 1..=2_000 {
            subject.advance(Duration::from_micros(step));
            elapsed += step;
            let fits = subject.remaining();
            subject.take(fits);
            admitted += u64::from(fits);
            assert_eq!(admitted, elapsed * u64::from(rate) / 1_000_000, "{rate} after {elapsed} µs");
        }
    }
}
