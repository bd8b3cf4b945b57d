//! More than two quotas in use at once on one key, as with callers of several tiers behind one address.

use std::time::Duration;

use ratekeeper_core::{DAY, HOUR, MINUTE, Quota, Retry};

use crate::quota_changes::quotas;
use crate::random::Random;
use crate::two_quotas::Turns;
use crate::{Bench, Harness, MICRO};

/// How many sets of quotas there are, and how many charges for each. A store may be far away.
const SETS: u64 = 60;
const STEPS: usize = 25;

/// Three to five quotas that look random.
fn sets() -> impl Iterator<Item = (u64, Vec<Quota>)> {
    let slow = [Quota::token_bucket(100, DAY), Quota::sliding_log(30, HOUR), Quota::fixed_window(50, DAY)];
    let all: Vec<Quota> = quotas().chain(slow).collect();
    (0..SETS).map(move |seed| {
        let mut random = Random(seed);
        let count = 3 + random.below(3);
        (seed, (0..count).map(|_| random.of(&all)).collect())
    })
}

/// A third quota replaces the older of two states, and everything else stays as with two.
pub async fn a_third_quota_replaces_the_older_state<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for (seed, quotas) in sets() {
        let mut turns = Turns::new(&bench, &quotas, seed).await;
        for _ in 0..STEPS {
            turns.step().await;
        }
    }
}

/// An announced wait is exact.
pub async fn a_wait_under_any_of_them_is_exact<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for (seed, quotas) in sets() {
        let mut turns = Turns::new(&bench, &quotas, seed).await;
        for step in 0..STEPS {
            let (cost, outcome) = turns.step().await;
            let quota = turns.caller.quota;
            let Some(wait) = outcome.retry().and_then(Retry::after).filter(|_| step % 3 == 0) else {
                continue;
            };
            let case = format!("{:?}: {cost} under {quota} in step {step} of {seed}", turns.quotas);
            assert!(wait > Duration::ZERO, "{case}");
            bench.advance(wait - MICRO).await;
            assert!(!turns.charge(cost).await.is_admitted(), "{case}, early");
            bench.advance(MICRO).await;
            assert!(turns.charge(cost).await.is_admitted(), "{case}, in time");
        }
    }
}

/// Whichever of them stays, its budget is full after its full refill; even if the clock steps back.
pub async fn nobody_is_locked_for_longer_than_a_full_refill<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for (seed, quotas) in sets() {
        for back in [Duration::ZERO, MINUTE, 2 * DAY] {
            let mut turns = Turns::new(&bench, &quotas, seed).await;
            bench.at(30 * DAY).await;
            for _ in 0..STEPS / 2 {
                turns.step().await;
            }
            bench.step_back(back).await;
            let stays = turns.random.of(&quotas);
            turns.caller.quota = stays;
            let locked = turns.caller.time_locked(None).await;
            let full = stays.full_refill();
            assert!(locked <= full, "{quotas:?}: {stays} was locked for {locked:?}, {back:?} back, {seed}");
        }
    }
}
