//! Two quotas in use at once on one key: nodes that learn of a change at different moments, or a caller whose
//! tier switches back and forth.

use std::time::Duration;

use ratekeeper_core::{HOUR, MINUTE, Outcome, Quota, SECOND};

use crate::quota_changes::quotas;
use crate::random::Random;
use crate::{Bench, Caller, Harness, Ledger, MICRO, each};

/// How many charges a history has. There is one history for each pair, and a store may be far away.
const STEPS: usize = 30;

/// How often a flood is repeated: for more than two full refills.
const WAVES: usize = 20;

/// The time since the start at which the clock steps back.
const LATE: Duration = Duration::from_secs(25 * 86_400 + 1);

/// Every pair of [`quotas`].
fn pairs() -> impl Iterator<Item = [Quota; 2]> {
    quotas().enumerate().flat_map(|(i, one)| quotas().skip(i + 1).map(move |other| [one, other]))
}

/// A key that is charged under two quotas, in turns that look random.
struct Turns<'a, H: Harness> {
    caller: Caller<'a, H>,
    quotas: [Quota; 2],
    ledger: Ledger,
    random: Random,
}

impl<'a, H: Harness> Turns<'a, H> {
    async fn new(bench: &'a Bench<H>, quotas: [Quota; 2], seed: u64) -> Self {
        let mut random = Random(seed);
        let caller = bench.caller_under(bench.rule("two"), quotas[0]);
        caller.reset().await;
        bench.at(Duration::from_micros(random.below(1 << 27))).await;
        Self { caller, quotas, ledger: Ledger::new(quotas), random }
    }

    /// Picks one of the quotas.
    fn turn(&mut self) {
        self.caller.quota = self.random.of(&self.quotas);
    }

    async fn charge(&mut self, cost: u32) -> Outcome {
        let outcome = self.caller.charge(cost).await;
        if outcome.is_admitted() {
            self.ledger.admit(cost, self.caller.bench.harness.now().await);
        }
        outcome
    }

    /// Acts as a caller that takes all there is: one after the other, under both, and faster than budgets
    /// come back.
    async fn flood(&mut self) {
        let [one, other] = self.quotas.map(|quota| quota.full_refill());
        let pause = one.min(other) / 8;
        for _ in 0..WAVES {
            self.caller.bench.advance(pause).await;
            for turn in 0..2 {
                self.caller.quota = self.quotas[turn];
                let mut cost = self.quotas[turn].max();
                while cost > 0 {
                    if !self.charge(cost).await.is_admitted() {
                        cost /= 2;
                    }
                }
            }
        }
    }

    /// Takes all there is under both, and leaves both quotas known to the store.
    async fn use_up(&mut self) {
        self.ask_both().await;
        for turn in [0, 1, 0, 1] {
            self.caller.quota = self.quotas[turn];
            self.caller.drain().await;
        }
    }

    /// Takes one under each of the quotas, if there is one, and under the first again.
    async fn ask_both(&mut self) {
        for turn in [0, 1, 0] {
            self.caller.quota = self.quotas[turn];
            self.charge(1).await;
        }
    }

    /// A pause that is not longer than an unused quota is remembered, and charges under both.
    async fn step_of_both(&mut self) -> (u32, Outcome) {
        let [one, other] = self.quotas.map(|quota| quota.full_refill().as_micros() as u64);
        let pause = self.random.below(4) * self.random.below(one.min(other) / 2) / 3;
        self.caller.bench.advance(Duration::from_micros(pause)).await;
        self.ask_both().await;
        self.turn();
        let cost = self.random.cost(&self.caller.quota);
        (cost, self.charge(cost).await)
    }

    /// A pause of any size and a charge.
    async fn step(&mut self) -> (u32, Outcome) {
        if self.random.below(3) > 0 {
            let quota = self.random.of(&self.quotas);
            self.caller.bench.advance(self.random.pause(&quota)).await;
        }
        self.turn();
        let cost = self.random.cost(&self.caller.quota);
        (cost, self.charge(cost).await)
    }
}

/// In no span is more admitted than the looser quota allows: what the larger holds, plus what comes back
/// under the faster.
pub async fn no_more_is_admitted_than_the_looser_allows<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for (seed, quotas) in (0..).zip(pairs()) {
        let mut turns = Turns::new(&bench, quotas, seed).await;
        for _ in 0..STEPS {
            turns.step_of_both().await;
        }
        turns.ledger.assert_within_the_looser();
        let mut turns = Turns::new(&bench, quotas, seed).await;
        turns.flood().await;
        turns.ledger.assert_within_the_looser();
    }
}

/// A denial comes from one of the two: from what was admitted under both, taken together.
pub async fn nobody_is_denied_whom_both_would_admit<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for (seed, quotas) in (0..).zip(pairs()) {
        let [one, other] = quotas;
        let mut turns = Turns::new(&bench, quotas, seed).await;
        turns.ask_both().await;
        for step in 0..STEPS {
            let (cost, outcome) = turns.step_of_both().await;
            let now = bench.harness.now().await;
            let both = quotas.iter().all(|quota| turns.ledger.would_admit(quota, cost, now));
            let asked = turns.caller.quota;
            assert!(outcome.is_admitted() || !both, "{one} and {other}: {cost} under {asked} in step {step}");
        }
    }
}

/// A wait that is announced under one of two quotas is as exact as any.
pub async fn a_wait_under_either_is_exact<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for (seed, quotas) in (0..).zip(pairs()) {
        let mut turns = Turns::new(&bench, quotas, seed).await;
        for step in 0..STEPS / 2 {
            let (cost, outcome) = turns.step().await;
            let Some(wait) = outcome.retry().and_then(ratekeeper_core::Retry::after) else { continue };
            let [one, other] = quotas;
            let asked = turns.caller.quota;
            assert!(wait > Duration::ZERO, "{one} and {other}: {cost} under {asked} in step {step}");
            bench.advance(wait - MICRO).await;
            let early = turns.charge(cost).await;
            assert!(!early.is_admitted(), "{one} and {other}: {cost} under {asked} in step {step}, early");
            bench.advance(MICRO).await;
            let in_time = turns.charge(cost).await;
            assert!(in_time.is_admitted(), "{one} and {other}: {cost} under {asked} in step {step}, in time");
        }
    }
}

/// Whichever of the two stays, its budget is full after its full refill.
pub async fn nobody_is_locked_for_longer_than_a_full_refill<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for (seed, quotas) in (0..).zip(pairs()) {
        for stays in quotas {
            let mut turns = Turns::new(&bench, quotas, seed).await;
            for _ in 0..STEPS / 4 {
                turns.step().await;
            }
            turns.caller.quota = stays;
            let locked = turns.caller.time_locked(None).await;
            let [one, other] = quotas;
            assert!(locked <= stays.full_refill(), "{one} and {other}: {stays} was locked for {locked:?}");
        }
    }
}

/// How far the clock steps back: by less than any full refill, and by more.
const BACK: [Duration; 3] = [Duration::from_millis(10), HOUR, Duration::from_secs(20 * 86_400)];

/// Nor does a clock that steps back lock anybody out for longer, even if both quotas stay in use.
pub async fn a_step_back_locks_nobody_for_longer_than_a_full_refill<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for (seed, quotas) in (0..).zip(pairs()) {
        for back in BACK {
            let mut turns = Turns::new(&bench, quotas, seed).await;
            for stays in quotas {
                turns.caller.reset().await;
                bench.at(LATE).await;
                turns.use_up().await;
                bench.step_back(back).await;
                turns.caller.quota = stays;
                let locked = turns.caller.time_locked(None).await;
                let [one, other] = quotas;
                assert!(
                    locked <= stays.full_refill(),
                    "{one} and {other}: {stays} for {locked:?}, {back:?} back"
                );
            }
        }
    }
}

/// And a wait that is announced then is as exact as any.
pub async fn a_wait_after_a_step_back_is_exact<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for (seed, quotas) in (0..).zip(pairs()) {
        for back in BACK {
            let mut turns = Turns::new(&bench, quotas, seed).await;
            for asked in quotas {
                turns.caller.reset().await;
                bench.at(LATE).await;
                turns.use_up().await;
                bench.step_back(back).await;
                turns.caller.quota = asked;
                let caller = &turns.caller;
                let [one, other] = quotas;
                let wait = crate::wait(&caller.charge(1).await);
                bench.advance(wait / 2).await;
                assert_eq!(
                    crate::wait(&caller.charge(1).await),
                    wait - wait / 2,
                    "{one} and {other}: {asked}"
                );
                bench.advance(wait - wait / 2 - MICRO).await;
                assert!(!caller.charge(1).await.is_admitted(), "{one} and {other}: {asked}, early");
                bench.advance(MICRO).await;
                assert!(caller.charge(1).await.is_admitted(), "{one} and {other}: {asked}, in time");
            }
        }
    }
}

/// What was used beyond a smaller burst is not forgotten because somebody asks under it.
pub async fn a_smaller_burst_that_is_asked_gives_nothing_back<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for (large, small) in each(100, MINUTE).into_iter().zip(each(10, MINUTE)).chain([
        (Quota::per_second(1).burst(100), Quota::per_second(1).burst(10)),
        (Quota::leaky_bucket(1, SECOND).capacity(100), Quota::leaky_bucket(1, SECOND).capacity(10)),
        // Even if it is very much smaller.
        (Quota::per_second(1).burst(5_000), Quota::per_second(1)),
        (Quota::per_second(10).burst(90_000), Quota::per_second(10).burst(1)),
    ]) {
        let mut caller = bench.caller(large);
        caller.take(large.max()).await;
        for _ in 0..5 {
            caller.quota = small;
            assert!(!caller.charge(1).await.is_admitted(), "{large} and {small}");
            caller.quota = large;
            assert!(!caller.charge(1).await.is_admitted(), "{large} and {small}");
        }
    }
}

/// What was charged under one quota and is given back is available again under both.
pub async fn what_is_given_back_is_given_back_to_both<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    // A queue gives back only to the last in it.
    let in_line = |quota: &Quota| quota.algorithm() == ratekeeper_core::Algorithm::LeakyBucket;
    for quotas in pairs().filter(|quotas| !quotas.iter().any(in_line)) {
        let mut turns = Turns::new(&bench, quotas, 0).await;
        bench.at(Duration::ZERO).await;
        let caller = &mut turns.caller;
        caller.take(1).await;
        caller.quota = quotas[1];
        caller.take(1).await;
        caller.quota = quotas[0];
        let receipt = caller.take(1).await;
        caller.refund(1, Some(receipt)).await;
        for quota in quotas {
            caller.quota = quota;
            assert_eq!(caller.remaining().await, quota.max() - 2, "{} and {}", quotas[0], quotas[1]);
        }
    }
}

/// A key that is reset has used nothing of either.
pub async fn a_reset_forgets_both<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quotas in pairs() {
        let mut turns = Turns::new(&bench, quotas, 0).await;
        for _ in 0..10 {
            turns.step().await;
        }
        turns.caller.reset().await;
        for quota in quotas {
            turns.caller.quota = quota;
            assert_eq!(turns.caller.remaining().await, quota.max(), "{} and {}", quotas[0], quotas[1]);
        }
    }
}
