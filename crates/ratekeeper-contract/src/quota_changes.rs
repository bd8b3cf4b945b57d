//! Keys whose quota changes while they are in use.

use ratekeeper_core::{MINUTE, Quota, SECOND};

use crate::{Bench, Harness, MICRO, each};

pub(crate) fn quotas() -> impl Iterator<Item = Quota> + Clone {
    let plain = [each(10, MINUTE), each(7, 3 * SECOND), each(20, MINUTE)];
    plain.into_iter().flatten().chain([
        Quota::per_minute(10).burst(3),
        Quota::per_minute(10).burst(40),
        Quota::leaky_bucket(10, MINUTE).capacity(40),
    ])
}

/// Every change from one of [`quotas`] to another.
fn changes() -> impl Iterator<Item = (Quota, Quota)> {
    quotas().flat_map(|old| quotas().map(move |new| (old, new))).filter(|(old, new)| old != new)
}

/// What was used stays used, up to what the new quota can hold, if the limit, period, burst or algorithm
/// changes.
pub async fn what_was_used_stays_used<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let rule = bench.rule("changing");
    for (old, new) in changes() {
        for used in [1, 3, old.max()] {
            let mut caller = bench.caller_under(rule, old);
            caller.reset().await;
            caller.take(used).await;
            caller.quota = new;
            let left = new.max().saturating_sub(used);
            assert_eq!(caller.remaining().await, left, "{old} to {new}, {used} used");
            let outcome = caller.charge(left.max(1)).await;
            assert_eq!(outcome.is_admitted(), left > 0, "{old} to {new}, {used} used");
            assert_eq!((outcome.limit(), outcome.remaining()), (new.max(), 0), "{old} to {new}, {used} used");
        }
    }
}

/// Raising a limit immediately helps callers that had used up the old one, even if they were denied since.
pub async fn raising_a_limit_unblocks_at_once<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for (small, large) in each(10, MINUTE).into_iter().zip(each(100, MINUTE)) {
        let mut caller = bench.caller(small);
        assert_eq!(caller.drain().await, 10);
        for _ in 0..50 {
            assert!(!caller.charge(1).await.is_admitted(), "{small}");
        }
        caller.quota = large;
        assert_eq!(caller.drain().await, 90, "{small} to {large}");
    }
}

/// Shrinking a limit from 100 to 10 bites immediately, and never turns into an error or into no limit.
pub async fn shrinking_a_limit_bites_at_once<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for (large, small) in each(100, MINUTE).into_iter().zip(each(10, MINUTE)) {
        for used in [4, 10, 60, 100] {
            let mut caller = bench.caller(large);
            caller.reset().await;
            caller.take(used).await;
            caller.quota = small;
            assert_eq!(caller.drain().await, 10_u32.saturating_sub(used), "{large} to {small}, {used} used");
            let outcome = caller.charge(1).await;
            assert_eq!((outcome.limit(), outcome.remaining()), (10, 0), "{large} to {small}, {used} used");
        }
    }
}

/// Nobody is locked out for longer than the new quota's full refill, whatever the old one was.
pub async fn nobody_is_locked_for_longer_than_a_full_refill<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let rule = bench.rule("changing");
    for (old, new) in changes() {
        let mut caller = bench.caller_under(rule, old);
        caller.reset().await;
        bench.at(17 * SECOND).await;
        caller.take(old.max()).await;
        bench.advance(SECOND).await;
        caller.quota = new;
        assert!(caller.peek(1).await.reset_after() <= new.full_refill(), "{old} to {new}");
        assert!(caller.time_locked(None).await <= new.full_refill(), "{old} to {new}");
    }
}

/// The same if another rule is asked in the same request, so that the denials apply to both together.
pub async fn nobody_is_locked_for_longer_by_a_request_of_several_rules<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let rule = bench.rule("changing");
    for old in [Quota::per_day(10), Quota::sliding_log(10, 60 * MINUTE), Quota::fixed_window(10, 90 * MINUTE)]
    {
        for new in each(10, SECOND) {
            let other = bench.caller(Quota::per_second(1_000));
            let mut caller = bench.caller_under(rule, old);
            caller.reset().await;
            caller.take(10).await;
            caller.quota = new;
            assert!(caller.time_locked(Some(&other)).await <= new.full_refill(), "{old} to {new}");
        }
    }
}

/// A wait that is announced under the new quota is as exact as any.
pub async fn a_wait_after_a_change_is_exact<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let rule = bench.rule("changing");
    for (old, new) in changes() {
        let mut caller = bench.caller_under(rule, old);
        caller.reset().await;
        bench.at(17 * SECOND).await;
        caller.take(old.max()).await;
        caller.quota = new;
        let Some(retry) = caller.charge(2).await.retry() else { continue };
        let wait = retry.after().expect("two fit at some time");
        bench.advance(wait - MICRO).await;
        assert!(!caller.charge(2).await.is_admitted(), "{old} to {new}, a microsecond early");
        bench.advance(MICRO).await;
        assert!(caller.charge(2).await.is_admitted(), "{old} to {new}, in time");
    }
}

/// A caller whose quota switches back and forth gains nothing by it, if both hold the same; else see
/// `two_quotas`.
pub async fn changing_to_and_fro_between_equals_gains_nothing<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let rule = bench.rule("changing");
    for (one, other) in changes().filter(|(one, other)| one.max() == other.max()) {
        let mut caller = bench.caller_under(rule, one);
        caller.reset().await;
        let mut admitted = 0;
        for turn in 0..4 * one.max() {
            caller.quota = if turn % 2 == 0 { one } else { other };
            admitted += u32::from(caller.charge(1).await.is_admitted());
        }
        assert_eq!(admitted, one.max(), "{one} and {other}");
    }
}
