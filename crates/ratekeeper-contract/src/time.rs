//! Clocks that step back, and keys that expire.

use std::time::Duration;

use ratekeeper_core::{Algorithm, MINUTE, Quota, SECOND};

use crate::{Bench, Harness, MICRO, each};

const STEPS: [Duration; 6] = [
    MICRO,
    Duration::from_millis(333),
    SECOND,
    Duration::from_secs(59),
    Duration::from_secs(61),
    Duration::from_secs(86_400),
];
/// The time since the start at which the clock steps back.
const LATE: Duration = Duration::from_secs(90_001);

/// A clock that steps back frees nothing.
pub async fn a_step_back_frees_nothing<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(10, MINUTE) {
        let caller = bench.caller(quota);
        for step in STEPS {
            for used in [1, 7, 10] {
                caller.reset().await;
                bench.at(LATE).await;
                caller.take(used).await;
                bench.advance(SECOND).await;
                let before = caller.remaining().await;
                bench.step_back(step).await;
                let after = caller.remaining().await;
                assert!(after <= before, "{quota}: {after} instead of {before}, {step:?} back");
                assert_eq!(caller.drain().await, after, "{quota}: {step:?} back");
            }
        }
    }
}

/// A sliding window whose clock steps back into the window before, where as little of it is left, still
/// counts what was counted in both.
pub async fn a_step_back_into_the_previous_window_frees_nothing<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let caller = bench.caller(Quota::sliding_window(100, MINUTE));
    caller.take(100).await;
    bench.at(114 * SECOND).await;
    assert_eq!(caller.drain().await, 90);
    bench.at(57 * SECOND).await;
    assert_eq!(caller.drain().await, 0);
}

/// A clock that steps back, however far, locks nobody for longer than a full refill.
pub async fn a_step_back_locks_nobody_for_longer_than_a_full_refill<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(10, MINUTE).into_iter().chain(each(7, SECOND)) {
        let caller = bench.caller(quota);
        for step in STEPS {
            caller.reset().await;
            bench.at(LATE).await;
            assert_eq!(caller.drain().await, quota.max());
            bench.step_back(step).await;
            assert!(caller.peek(1).await.reset_after() <= quota.full_refill(), "{quota}: {step:?} back");
            assert!(caller.time_locked(None).await <= quota.full_refill(), "{quota}: {step:?} back");
        }
    }
}

/// The same if another rule is asked in the same request, so that the denials apply to both together.
pub async fn a_step_back_locks_no_request_of_several_rules_for_longer<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(10, SECOND) {
        let caller = bench.caller(quota);
        let other = bench.caller(Quota::per_second(1_000));
        for step in STEPS {
            caller.reset().await;
            other.reset().await;
            bench.at(LATE).await;
            assert_eq!(caller.drain().await, quota.max());
            bench.step_back(step).await;
            let locked = caller.time_locked(Some(&other)).await;
            assert!(locked <= quota.full_refill(), "{quota}: {step:?} back, {locked:?}");
        }
    }
}

/// A wait that is announced after a step back is as exact as any.
pub async fn a_wait_after_a_step_back_is_exact<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(10, MINUTE) {
        let caller = bench.caller(quota);
        for step in STEPS {
            caller.reset().await;
            bench.at(LATE).await;
            assert_eq!(caller.drain().await, quota.max());
            bench.step_back(step).await;
            let wait = crate::wait(&caller.charge(4).await);
            bench.advance(wait - MICRO).await;
            assert!(!caller.charge(4).await.is_admitted(), "{quota}: {step:?} back, a microsecond early");
            bench.advance(MICRO).await;
            assert!(caller.charge(4).await.is_admitted(), "{quota}: {step:?} back, in time");
        }
    }
}

/// A clock that jitters a little, forwards and back, admits no more than one that stands still.
pub async fn a_jittering_clock_admits_no_more<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(20, MINUTE) {
        let caller = bench.caller(quota);
        let mut admitted = 0;
        for step in 0..60_u64 {
            bench.at(30 * SECOND + Duration::from_micros(step * 7_919 % 1_009)).await;
            admitted += u32::from(caller.charge(1).await.is_admitted());
        }
        assert_eq!(admitted, 20, "{quota}");
    }
}

/// Nor does one that jitters around the edge of a window: a fixed window restarts there only once.
pub async fn a_clock_that_trembles_on_an_edge_admits_no_more<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(20, MINUTE) {
        let caller = bench.caller(quota);
        let mut admitted = 0;
        for _ in 0..5 {
            bench.at(MINUTE - MICRO).await;
            admitted += caller.drain().await;
            bench.at(MINUTE + MICRO).await;
            admitted += caller.drain().await;
        }
        let most = if quota.algorithm() == Algorithm::FixedWindow { 40 } else { 20 };
        assert_eq!(admitted, most, "{quota}");
    }
}

/// When a key's budget is full again, it is as if the key had never been charged.
pub async fn a_whole_key_is_like_one_that_was_never_charged<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(10, MINUTE) {
        let old = bench.caller(quota);
        let new = bench.caller(quota).with_key("new");
        bench.at(13 * SECOND).await;
        old.take(7).await;
        let reset_after = old.peek(1).await.reset_after();
        bench.advance(reset_after).await;
        for cost in [1, 10, 11] {
            assert_eq!(old.peek(cost).await, new.peek(cost).await, "{quota}: {cost}");
        }
        assert_eq!(old.charge(4).await, new.charge(4).await, "{quota}");
    }
}

/// However long nobody asked: what is over does not count again.
pub async fn a_window_of_a_millisecond_is_over_for_good<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let millisecond = Duration::from_millis(1);
    for quota in each(10, millisecond) {
        for windows in [1 << 31, (1 << 32) - 1, 1 << 32, (1 << 32) + 1, 1 << 33] {
            let caller = bench.caller(quota);
            caller.reset().await;
            bench.at(Duration::ZERO).await;
            caller.take(10).await;
            bench.at(Duration::from_millis(windows)).await;
            assert_eq!(caller.remaining().await, 10, "{quota}: {windows} windows later");
            assert_eq!(caller.drain().await, 10, "{quota}: {windows} windows later");
        }
    }
}
