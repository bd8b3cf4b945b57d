//! More than two quotas in use at once on one key, as with callers of several tiers behind one address.

use std::time::Duration;

use ratekeeper_core::{DAY, HOUR, MINUTE, Outcome, Quota, Retry, SECOND};

use crate::quota_changes::quotas;
use crate::random::Random;
use crate::{Bench, Caller, Harness, Ledger, MICRO};

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

/// A key that is charged under all of them.
struct Turns<'a, H: Harness> {
    caller: Caller<'a, H>,
    quotas: Vec<Quota>,
    ledger: Ledger,
    random: Random,
}

impl<'a, H: Harness> Turns<'a, H> {
    async fn new(bench: &'a Bench<H>, quotas: Vec<Quota>, seed: u64) -> Self {
        let caller = bench.caller_under(bench.rule("many"), quotas[0]);
        caller.reset().await;
        bench.at(Duration::from_secs(seed)).await;
        Self { caller, ledger: Ledger::new(quotas.iter().copied()), quotas, random: Random(seed) }
    }

    async fn charge(&mut self, quota: Quota, cost: u32) -> Outcome {
        self.caller.quota = quota;
        let outcome = self.caller.charge(cost).await;
        if outcome.is_admitted() {
            self.ledger.admit(cost, self.caller.bench.harness.now().await);
        }
        outcome
    }

    /// A pause, mostly short, and a charge under any of them.
    async fn step(&mut self) -> (Quota, u32, Outcome) {
        let quota = self.random.of(&self.quotas);
        if self.random.below(3) == 0 {
            self.caller.bench.advance(self.random.pause(&quota)).await;
        }
        let cost = self.random.cost(&quota);
        let outcome = self.charge(quota, cost).await;
        (quota, cost, outcome)
    }
}

/// A caller that takes all there is under each of them, round after round, gets no more than the loosest
/// allows.
pub async fn no_more_is_admitted_than_the_loosest_allows<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for (seed, quotas) in sets() {
        let mut turns = Turns::new(&bench, quotas.clone(), seed).await;
        let pause = quotas.iter().map(Quota::full_refill).min().unwrap_or(SECOND) / 5;
        for _ in 0..6 {
            for quota in &quotas {
                let mut cost = quota.max();
                while cost > 0 {
                    if !turns.charge(*quota, cost).await.is_admitted() {
                        cost /= 2;
                    }
                }
            }
            bench.advance(pause).await;
        }
        turns.ledger.assert_within_the_looser();
    }
}

/// The case to have in mind: a key that is asked under a small quota and one in between does not get the
/// large one anew.
pub async fn the_largest_does_not_begin_anew_in_each_round<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let tiers = [1_000, 100, 10].map(Quota::per_hour);
    let caller = bench.caller_under(bench.rule("tiers"), tiers[0]);
    let mut turns = Turns { caller, quotas: tiers.to_vec(), ledger: Ledger::new(tiers), random: Random(0) };
    for _ in 0..10 {
        for tier in tiers {
            while turns.charge(tier, tier.max() / 10).await.is_admitted() {}
        }
    }
    assert_eq!(turns.ledger.total(), 1_000);
}

/// An announced wait is exact.
pub async fn a_wait_under_any_of_them_is_exact<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for (seed, quotas) in sets() {
        let mut turns = Turns::new(&bench, quotas, seed).await;
        for step in 0..STEPS {
            let (quota, cost, outcome) = turns.step().await;
            let Some(wait) = outcome.retry().and_then(Retry::after).filter(|_| step % 3 == 0) else {
                continue;
            };
            let case = format!("{:?}: {cost} under {quota} in step {step} of {seed}", turns.quotas);
            assert!(wait > Duration::ZERO, "{case}");
            bench.advance(wait - MICRO).await;
            assert!(!turns.charge(quota, cost).await.is_admitted(), "{case}, early");
            bench.advance(MICRO).await;
            assert!(turns.charge(quota, cost).await.is_admitted(), "{case}, in time");
        }
        turns.ledger.assert_within_the_looser();
    }
}

/// Whichever of them stays, its budget is full after its full refill; even if the clock steps back.
pub async fn nobody_is_locked_for_longer_than_a_full_refill<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for (seed, quotas) in sets() {
        for back in [Duration::ZERO, MINUTE, 2 * DAY] {
            let mut turns = Turns::new(&bench, quotas.clone(), seed).await;
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

/// What is given back is available again.
pub async fn what_is_given_back_is_there_again<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let tiers = [Quota::per_hour(1_000), Quota::sliding_log(100, HOUR), Quota::fixed_window(10, DAY)];
    let mut caller = bench.caller_under(bench.rule("given-back"), tiers[0]);
    for tier in tiers {
        caller.quota = tier;
        caller.take(1).await;
    }
    for _ in 0..3 {
        for tier in tiers {
            caller.quota = tier;
            let before = caller.remaining().await;
            let receipt = caller.take(before).await;
            caller.refund(before, Some(receipt)).await;
            assert_eq!(caller.remaining().await, before, "{tier}");
        }
    }
}
