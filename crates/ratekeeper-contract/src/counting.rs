//! How much is admitted.

use std::time::Duration;

use ratekeeper_core::{Algorithm, MINUTE, Quota, Retry, SECOND};

use crate::{Bench, Harness, MICRO, each};

/// As many as the limit are admitted at once, and each reports what is left.
pub async fn admits_the_limit_and_says_what_remains<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(10, MINUTE)
        .into_iter()
        .chain([Quota::per_minute(60).burst(10), Quota::leaky_bucket(60, MINUTE).capacity(10)])
    {
        let caller = bench.caller(quota);
        for left in (0..10).rev() {
            let outcome = caller.charge(1).await;
            assert!(outcome.is_admitted(), "{quota}");
            assert_eq!((outcome.limit(), outcome.remaining()), (10, left), "{quota}");
        }
        let denied = caller.charge(1).await;
        assert!(!denied.is_admitted(), "{quota}");
        assert_eq!((denied.limit(), denied.remaining()), (10, 0), "{quota}");
        assert!(denied.reset_after() <= quota.full_refill(), "{quota}");
    }
}

/// A key that was charged once and then left alone holds its quota, and not one more.
pub async fn an_idle_key_never_holds_more_than_its_quota<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    // Pauses after which other limiters were found to admit more.
    for pause in [8_900, 900, 999, 1_001, 10_000, 3_600_000, 86_400_000].map(Duration::from_millis) {
        for quota in each(10, 10 * SECOND).into_iter().chain([Quota::per_second(1).burst(5)]) {
            let caller = bench.caller(quota);
            caller.reset().await;
            caller.take(1).await;
            bench.advance(pause).await;
            let admitted = caller.drain().await;
            assert!(admitted <= quota.max(), "{quota}: {admitted} after {pause:?}");
            assert!(admitted >= quota.max() - 1, "{quota}: {admitted} after {pause:?}");
        }
    }
}

/// A cost is part of the check: what does not fit is denied and not charged, even though less would fit.
pub async fn a_cost_that_does_not_fit_is_denied_and_not_charged<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(100, MINUTE) {
        let caller = bench.caller(quota);
        caller.take(95).await;
        for _ in 0..3 {
            let denied = caller.charge(10).await;
            assert!(!denied.is_admitted(), "{quota}");
            assert_eq!(denied.remaining(), 5, "{quota}");
        }
        caller.take(5).await;
        assert!(!caller.charge(1).await.is_admitted(), "{quota}");
    }
}

/// Denials, however many, do not postpone the next admission.
pub async fn denials_do_not_prolong_the_wait<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(10, 10 * SECOND) {
        let caller = bench.caller(quota);
        bench.at(Duration::ZERO).await;
        assert_eq!(caller.drain().await, 10, "{quota}");
        let wait = crate::wait(&caller.charge(1).await);
        for _ in 0..20 {
            bench.advance(wait / 25).await;
            assert!(!caller.charge(1).await.is_admitted(), "{quota}");
        }
        bench.at(wait).await;
        assert!(caller.charge(1).await.is_admitted(), "{quota}");
    }
}

/// A cost of zero is admitted, takes nothing, and reports the state of the budget.
pub async fn a_cost_of_zero_takes_nothing<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(3, MINUTE) {
        let caller = bench.caller(quota);
        for left in (0..=3).rev() {
            let outcome = caller.charge(0).await;
            assert!(outcome.is_admitted(), "{quota}");
            assert_eq!(outcome.remaining(), left, "{quota}");
            assert_eq!(caller.charge(1).await.is_admitted(), left > 0, "{quota}");
        }
    }
}

/// Two rules do not share a counter, even if the key is the same.
pub async fn one_key_under_two_rules_is_counted_twice<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(5, MINUTE) {
        let [a, b] = ["a", "b"].map(|name| bench.caller_under(bench.rule(name), quota));
        a.reset().await;
        b.reset().await;
        assert_eq!(a.drain().await, 5, "{quota}");
        assert_eq!(b.drain().await, 5, "{quota}");
        a.reset().await;
        assert_eq!((a.remaining().await, b.remaining().await), (5, 0), "{quota}");
    }
}

/// From one in thirty days to ten million a second, nothing drifts: after any time the admitted total is the
/// ideal, rounded down.
pub async fn slow_and_fast_rates_do_not_drift<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for (limit, period, burst) in [
        (3, SECOND, 10),
        (7, SECOND, 10),
        (9_999_999, SECOND, 10_000_000),
        (10_000_000, SECOND, 10_000_000),
        (1, 30 * 24 * 60 * MINUTE, 10),
    ] {
        let caller = bench.caller(Quota::token_bucket(limit, period).burst(burst));
        caller.take(burst).await;
        let (mut elapsed, mut admitted) = (0, 0);
        for step in 1..=40_u32 {
            let pause = (period / limit * burst / 3).max(MICRO) / step + step * MICRO;
            let pause = Duration::from_micros(pause.as_micros() as u64);
            bench.advance(pause).await;
            elapsed += pause.as_micros();
            let fits = caller.remaining().await;
            caller.take(fits).await;
            admitted += u128::from(fits);
            assert_eq!(admitted, elapsed * u128::from(limit) / period.as_micros(), "{}", caller.quota);
        }
    }
}

/// An invalid quota admits nothing, is not an error, and a key is not counted under it.
pub async fn a_quota_that_makes_no_sense_admits_nothing_and_forgets_nothing<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(5, MINUTE) {
        let mut caller = bench.caller(quota);
        for fault in [
            Quota::per_second(0),
            Quota::fixed_window(5, Duration::ZERO),
            Quota::sliding_window(5, Duration::MAX),
            Quota::sliding_log(5, Duration::MAX),
            Quota::sliding_log(5, MINUTE).burst(5),
            Quota::leaky_bucket(1, MINUTE).capacity(0),
        ] {
            caller.reset().await;
            caller.quota = fault;
            assert_eq!(caller.charge(1).await.retry(), Some(Retry::Never), "{fault:?}");
            caller.quota = quota;
            caller.take(3).await;
            caller.quota = fault;
            assert_eq!(caller.charge(1).await.retry(), Some(Retry::Never), "{quota}, {fault:?}");
            assert_eq!(caller.peek(1).await.retry(), Some(Retry::Never), "{quota}, {fault:?}");
            caller.quota = quota;
            assert_eq!(caller.drain().await, 2, "{quota}, {fault:?}");
        }
    }
}

/// Departures from a queue keep their distance, whatever the rate, and however late some requests come.
pub async fn departures_from_a_queue_are_never_closer_than_the_rate<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in [Quota::leaky_bucket(3, SECOND).capacity(5), Quota::leaky_bucket(7, SECOND)] {
        assert_eq!(quota.algorithm(), Algorithm::LeakyBucket);
        let caller = bench.caller(quota);
        let spacing = u128::from(quota.period().as_micros() as u64 / u64::from(quota.limit()));
        let mut last = None;
        for step in 0..60_u64 {
            bench.advance(Duration::from_micros(step * 7_919 % 211_111)).await;
            let outcome = caller.charge(1).await;
            if outcome.is_admitted() {
                let departure =
                    u128::from(bench.harness.now().await.as_micros()) + outcome.delay().as_micros();
                let near = last.is_some_and(|last| departure < last + spacing);
                assert!(!near, "{quota}: {departure} is too close to {last:?}");
                last = Some(departure);
            }
        }
    }
}
