//! Two quotas in use at once on one key: nodes that learn of a change at different moments, or a caller whose
//! tier switches back and forth.

use std::time::Duration;

use ratekeeper_core::{HOUR, MINUTE, Outcome, Quota, SECOND};

use crate::quota_changes::quotas;
use crate::random::Random;
use crate::{Bench, Caller, Harness, MICRO, Model, each};

/// How many charges a history has. There is one history for each pair, and a store may be far away.
const STEPS: usize = 30;

/// The time since the start at which the clock steps back.
const LATE: Duration = Duration::from_secs(25 * 86_400 + 1);

/// Every pair of [`quotas`].
fn pairs() -> impl Iterator<Item = [Quota; 2]> {
    quotas().enumerate().flat_map(|(i, one)| quotas().skip(i + 1).map(move |other| [one, other]))
}

/// A key that is charged under several quotas, in turns that look random.
pub(crate) struct Turns<'a, H: Harness> {
    pub(crate) caller: Caller<'a, H>,
    pub(crate) quotas: Vec<Quota>,
    pub(crate) random: Random,
    model: Model,
}

impl<'a, H: Harness> Turns<'a, H> {
    pub(crate) async fn new(bench: &'a Bench<H>, quotas: &[Quota], seed: u64) -> Self {
        let mut random = Random(seed);
        let caller = bench.caller_under(bench.rule("turns"), quotas[0]);
        caller.reset().await;
        bench.at(Duration::from_micros(random.below(1 << 27))).await;
        Self { caller, quotas: quotas.to_vec(), random, model: Model::new(&quotas[0]) }
    }

    /// Picks one of the quotas.
    fn turn(&mut self) {
        self.caller.quota = self.random.of(&self.quotas);
    }

    /// A charge, and what the model says about it.
    pub(crate) async fn charge(&mut self, cost: u32) -> Outcome {
        let (quota, now) = (self.caller.quota, self.caller.bench.harness.now().await);
        let left = self.model.ask(&quota, now);
        let outcome = self.caller.charge(cost).await;
        let case = || format!("{cost} of {left} under {quota}, one of {:?}: {outcome:?}", self.quotas);
        assert!(Model::fits(left, cost).is_none_or(|fits| fits == outcome.is_admitted()), "{}", case());
        let taken = if outcome.is_admitted() { f64::from(cost) } else { 0.0 };
        assert_eq!(outcome.remaining(), Model::whole((left - taken).max(0.0)), "{}", case());
        if outcome.is_admitted() {
            self.model.admit(cost, now);
        }
        outcome
    }

    /// Takes all there is under each of the quotas.
    pub(crate) async fn use_up(&mut self) {
        for turn in [0, 1, 0, 1] {
            self.caller.quota = self.quotas[turn];
            self.caller.drain().await;
        }
    }

    /// A pause of any size and a charge.
    pub(crate) async fn step(&mut self) -> (u32, Outcome) {
        if self.random.below(3) > 0 {
            let quota = self.random.of(&self.quotas);
            self.caller.bench.advance(self.random.pause(&quota)).await;
        }
        self.turn();
        let cost = self.random.cost(&self.caller.quota);
        (cost, self.charge(cost).await)
    }
}

/// Each charge is decided under its own quota and counted under both: the store answers like a model that
/// knows nothing else.
pub async fn a_charge_is_decided_under_its_own_and_counted_under_both<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for (seed, quotas) in (0..).zip(pairs()) {
        let mut turns = Turns::new(&bench, &quotas, seed).await;
        for _ in 0..STEPS {
            turns.step().await;
        }
    }
}

/// The case to have in mind: what is left of a long quota does not come back because a short one was asked.
pub async fn a_quota_remembers_what_was_charged_under_the_other<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let (long, short) = (Quota::per_hour(100), Quota::per_second(10));
    let mut caller = bench.caller_under(bench.rule("long"), long);
    caller.take(96).await;
    caller.quota = short;
    assert!(!caller.charge(1).await.is_admitted());
    bench.advance(5 * SECOND).await;
    caller.take(2).await;
    // All that was charged under the short quota has come back, and the long one has not forgotten.
    bench.advance(5 * SECOND).await;
    assert_eq!(caller.remaining().await, 10);
    caller.quota = long;
    assert_eq!(caller.drain().await, 2);
}

/// A wait that is announced under one of two quotas is as exact as any.
pub async fn a_wait_under_either_is_exact<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for (seed, quotas) in (0..).zip(pairs()) {
        let mut turns = Turns::new(&bench, &quotas, seed).await;
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
            let mut turns = Turns::new(&bench, &quotas, seed).await;
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
            let mut turns = Turns::new(&bench, &quotas, seed).await;
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
            let mut turns = Turns::new(&bench, &quotas, seed).await;
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
        let mut turns = Turns::new(&bench, &quotas, 0).await;
        bench.at(Duration::ZERO).await;
        let caller = &mut turns.caller;
        caller.take(1).await;
        caller.quota = quotas[1];
        caller.take(1).await;
        caller.quota = quotas[0];
        caller.take(1).await;
        caller.refund(1, None).await;
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
        let mut turns = Turns::new(&bench, &quotas, 0).await;
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
