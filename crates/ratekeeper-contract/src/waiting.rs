//! What outcomes announce about the future.

use std::time::Duration;

use ratekeeper_core::{MINUTE, Outcome, Quota, Retry, SECOND};

use crate::{Bench, Caller, Harness, MICRO, each, wait};

fn quotas() -> impl Iterator<Item = Quota> {
    let plain = [each(6, 10 * SECOND), each(7, SECOND)];
    plain.into_iter().flatten().chain([
        Quota::per_second(3).burst(5),
        Quota::per_second(999_983).burst(4),
        Quota::leaky_bucket(3, SECOND).capacity(5),
        Quota::sliding_window(5, 30 * 24 * 60 * MINUTE),
    ])
}

/// Gives a key a history, ending at the same time for the same quota.
async fn keep_busy<H: Harness>(caller: &Caller<'_, H>) {
    caller.reset().await;
    caller.bench.at(Duration::from_micros(7_777_777)).await;
    for (pause, cost) in [(11, 3), (2_000_003, 1), (333_333, 4), (5_000_001, 2), (1, 2), (99_999, 1)] {
        caller.bench.advance(Duration::from_micros(pause)).await;
        caller.charge(cost).await;
    }
    caller.drain().await;
}

/// Waiting exactly as long as a denied charge was told to succeeds; a microsecond less fails.
pub async fn a_wait_is_exact<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in quotas() {
        let caller = bench.caller(quota);
        for cost in 1..=quota.max() {
            keep_busy(&caller).await;
            let wait = wait(&caller.charge(cost).await);
            assert!(wait <= quota.full_refill(), "{quota}: {cost}");
            bench.advance(wait - MICRO).await;
            let early = caller.charge(cost).await;
            assert_eq!(early.retry(), Some(Retry::After(MICRO)), "{quota}: {cost}, a microsecond early");
            bench.advance(MICRO).await;
            assert!(caller.charge(cost).await.is_admitted(), "{quota}: {cost}, in time");
        }
    }
}

/// The remaining budget grows when announced, and is full when announced.
pub async fn a_refill_and_a_reset_are_exact<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in quotas() {
        let caller = bench.caller(quota);
        keep_busy(&caller).await;
        let now = caller.charge(1).await;
        let remaining_in = async |wait: Duration| {
            bench.advance(wait).await;
            let remaining = caller.remaining().await;
            bench.step_back(wait).await;
            remaining
        };
        let (refill, reset) = (now.refill_after(), now.reset_after());
        assert_eq!(remaining_in(refill - MICRO).await, now.remaining(), "{quota}");
        assert!(remaining_in(refill).await > now.remaining(), "{quota}");
        assert!(remaining_in(reset - MICRO).await < quota.max(), "{quota}");
        assert_eq!(remaining_in(reset).await, quota.max(), "{quota}");
        assert!(reset <= quota.full_refill(), "{quota}");
    }
}

/// A full budget reports that there is nothing to wait for.
pub async fn a_whole_budget_has_nothing_to_wait_for<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in quotas() {
        let caller = bench.caller(quota);
        let nothing = (quota.max(), Duration::ZERO, Duration::ZERO);
        let figures = |o: Outcome| (o.remaining(), o.reset_after(), o.refill_after());
        assert_eq!(figures(caller.peek(1).await), nothing, "{quota}: never charged");
        let reset_after = caller.charge(1).await.reset_after();
        bench.advance(reset_after).await;
        assert_eq!(figures(caller.peek(1).await), nothing, "{quota}: whole again");
    }
}

/// A cost larger than the quota can ever hold is answered with never, takes nothing, and is not an error.
pub async fn a_cost_above_the_capacity_is_never<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in quotas() {
        let caller = bench.caller(quota);
        for cost in [quota.max() + 1, 1 << 31, u32::MAX] {
            caller.reset().await;
            assert_eq!(caller.charge(cost).await.retry(), Some(Retry::Never), "{quota}: {cost}");
            assert_eq!(caller.peek(cost).await.retry(), Some(Retry::Never), "{quota}: {cost}");
            caller.take(1).await;
            assert_eq!(caller.charge(cost).await.retry(), Some(Retry::Never), "{quota}: {cost}");
            assert_eq!(caller.remaining().await, quota.max() - 1, "{quota}: {cost}");
        }
    }
}

/// If several rules deny, the request waits for the last; never is the longest wait of all.
pub async fn a_denied_request_waits_for_the_last_of_its_rules<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let [a, b, c] = [Quota::per_second(1), Quota::fixed_window(2, MINUTE), Quota::sliding_log(3, SECOND)]
        .map(|quota| bench.caller(quota));
    bench.charge(&[a.cost(1), b.cost(2), c.cost(3)]).await;
    let denied = bench.charge(&[a.cost(1), b.cost(1), c.cost(1)]).await;
    assert_eq!(denied.retry(), Some(Retry::After(MINUTE)));
    assert_eq!(denied.denied_by().count(), 3);

    bench.advance(MINUTE - MICRO).await;
    let denied = bench.charge(&[a.cost(1), b.cost(1), c.cost(1)]).await;
    assert_eq!(denied.denied_by().collect::<Vec<_>>(), [b.rule]);
    bench.advance(MICRO).await;
    assert!(bench.charge(&[a.cost(1), b.cost(1), c.cost(1)]).await.is_admitted());

    let never = bench.charge(&[a.cost(1), b.cost(3), c.cost(1)]).await;
    assert_eq!(never.retry(), Some(Retry::Never));
}
