//! Figures that were worked out by hand.

use std::time::Duration;

use ratekeeper_core::{Algorithm, HOUR, MINUTE, Quota, SECOND};

use crate::{Bench, Caller, Harness, each, wait};

/// A sliding window of 100 a minute with these counts, `elapsed` seconds into the current window.
async fn sliding<H: Harness>(bench: &Bench<H>, previous: u32, current: u32, elapsed: u64) -> Caller<'_, H> {
    let mut caller = bench.caller(Quota::sliding_window(100, MINUTE));
    // Both windows are filled under a larger limit, so that any two counts are possible.
    caller.quota = Quota::sliding_window(1_000, MINUTE);
    bench.step_back(MINUTE).await;
    caller.take(previous).await;
    bench.at(Duration::ZERO).await;
    caller.take(current).await;
    bench.at(Duration::from_secs(elapsed)).await;
    caller.quota = Quota::sliding_window(100, MINUTE);
    caller
}

/// Previous 84, current 36, 15 s in: the estimate is 99.
pub async fn a_sliding_window_at_99_of_100_admits_one_more<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let caller = sliding(&bench, 84, 36, 15).await;
    assert_eq!(caller.remaining().await, 1);
    assert_eq!(caller.drain().await, 1);
}

/// Previous 80, current 30, 45 s in: the estimate is 50.
pub async fn a_sliding_window_at_50_of_100_admits_fifty_more<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let caller = sliding(&bench, 80, 30, 45).await;
    assert_eq!(caller.remaining().await, 50);
    assert_eq!(caller.drain().await, 50);
}

/// Previous 85, current 40, 15 s in: 103.75. Previous 100, current 95, 1 s in: 193.3.
pub async fn a_sliding_window_above_100_denies_until_it_has_faded<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for (previous, current, elapsed, micros) in [(85, 40, 15, 3_352_942), (100, 95, 1, 56_600_000)] {
        let caller = sliding(&bench, previous, current, elapsed).await;
        assert_eq!(wait(&caller.charge(1).await), Duration::from_micros(micros));
        caller.reset().await;
    }
}

/// A bucket of 100 at 100 a minute, empty, holds 50 after 30 s.
pub async fn a_token_bucket_refills_steadily<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let caller = bench.caller(Quota::per_minute(100));
    caller.take(100).await;
    bench.advance(30 * SECOND).await;
    assert_eq!(caller.remaining().await, 50);
    assert_eq!(caller.drain().await, 50);
}

/// A bucket of 50 at 10 a second: 45 are taken at once, and a second later it holds 15.
pub async fn a_token_bucket_adds_to_what_was_left<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let caller = bench.caller(Quota::per_second(10).burst(50));
    caller.take(45).await;
    bench.advance(SECOND).await;
    assert_eq!(caller.drain().await, 15);
}

/// Capacity 10 at 5 a second: ten are admitted, the eleventh is denied, 0.2 s later one is admitted.
pub async fn a_token_bucket_passes_its_burst_and_then_its_rate<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let caller = bench.caller(Quota::per_second(5).burst(10));
    assert_eq!(caller.drain().await, 10);
    assert_eq!(wait(&caller.charge(1).await), Duration::from_millis(200));
    bench.advance(Duration::from_millis(200)).await;
    assert_eq!(caller.drain().await, 1);
}

/// An hour of idling fills a bucket to its capacity and no further.
pub async fn an_idle_token_bucket_fills_to_its_burst<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let caller = bench.caller(Quota::per_second(5).burst(10));
    caller.take(10).await;
    bench.advance(HOUR).await;
    assert_eq!(caller.drain().await, 10);
}

/// A leaky bucket of 3 draining one a second, five at once: three leave at 0, 1 and 2 s, two are denied.
pub async fn a_leaky_bucket_spaces_departures<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let caller = bench.caller(Quota::leaky_bucket(1, SECOND).capacity(3));
    for turn in 0..3 {
        let outcome = caller.charge(1).await;
        assert!(outcome.is_admitted());
        assert_eq!(outcome.delay(), turn * SECOND);
    }
    for _ in 0..2 {
        assert_eq!(wait(&caller.charge(1).await), SECOND);
    }
}

/// 20 at 85 % of one window and 20 at the start of the next all pass a fixed window, but no other algorithm.
pub async fn only_a_fixed_window_passes_twice_its_limit_around_an_edge<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(20, MINUTE) {
        let caller = bench.caller(quota);
        bench.at(51 * SECOND).await;
        assert_eq!(caller.drain().await, 20, "{quota}");
        bench.at(60 * SECOND).await;
        let expected = match quota.algorithm() {
            Algorithm::FixedWindow => 20,
            Algorithm::SlidingWindow | Algorithm::SlidingLog => 0,
            // What nine seconds at 20 a minute give back.
            _ => 3,
        };
        assert_eq!(caller.drain().await, expected, "{quota}");
    }
}
