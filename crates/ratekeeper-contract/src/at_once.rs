//! Many calls at the same time.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;

use ratekeeper_core::{
    Algorithm, Charge, Debit, Decision, Key, MINUTE, Quota, Receipt, Refund, RuleName, Store,
};

use crate::join::join_all;
use crate::{Bench, Harness, each};

/// How often a storm is repeated: a single one may miss that a store reads, decides and then writes.
const ROUNDS: usize = 16;
const TASKS: usize = 8;

/// Where tasks wait for each other, so that they act at the same time afterwards.
#[derive(Debug, Default)]
struct Line {
    came: AtomicUsize,
}

impl Line {
    /// Returns when all tasks have arrived in this round.
    async fn start(&self, round: usize) {
        self.came.fetch_add(1, Ordering::SeqCst);
        poll_fn(|context| {
            if self.came.load(Ordering::SeqCst) >= TASKS * (round + 1) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            // A task that has not arrived may need the processor.
            thread::yield_now();
            Poll::Pending
        })
        .await;
    }
}

/// What a task does in a round, on its own store.
trait Does<S: Store>: Send + Sync + 'static {
    fn act(&self, store: &S, task: usize, round: usize) -> impl Future<Output = u32> + Send;
}

/// Has all tasks act at once, round after round, and returns the sum of their counts for each round.
async fn storm<H: Harness>(bench: &Bench<H>, what: impl Does<H::Store>) -> Vec<u32> {
    let line = Arc::new(Line::default());
    let counts = Arc::new([const { AtomicU32::new(0) }; ROUNDS]);
    let what = Arc::new(what);
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (store, line, counts, what) =
                (bench.harness.store(), Arc::clone(&line), Arc::clone(&counts), Arc::clone(&what));
            bench.harness.spawn(async move {
                for (round, count) in counts.iter().enumerate() {
                    line.start(round).await;
                    count.fetch_add(what.act(&store, task, round).await, Ordering::Relaxed);
                }
            })
        })
        .collect();
    join_all(tasks).await;
    counts.iter().map(|count| count.load(Ordering::Relaxed)).collect()
}

/// One charge: rule, key, quota and cost.
type Own = (RuleName, Key, Quota, u32);

fn by_ref(charges: &[Own]) -> Vec<Charge<'_>> {
    charges.iter().map(|(rule, key, quota, cost)| Charge::new(*rule, key, quota).cost(*cost)).collect()
}

/// Makes all charges together `times` times, without waiting in between, and counts what is admitted.
struct Charges<F> {
    times: usize,
    /// What is charged, by task and round.
    charges: F,
}

impl<S: Store, F: Fn(usize, usize) -> Vec<Own> + Send + Sync + 'static> Does<S> for Charges<F> {
    async fn act(&self, store: &S, task: usize, round: usize) -> u32 {
        let charges = (self.charges)(task, round);
        let charges = by_ref(&charges);
        let answers = (0..self.times).map(|_| store.charge(&charges).into_future());
        let answers = join_all(answers.collect::<Vec<_>>()).await;
        let decisions = answers.into_iter().map(|answer| answer.expect("the store decides"));
        decisions.filter(Decision::is_admitted).count() as u32
    }
}

/// Of two hundred at once on one key, exactly the limit is admitted.
pub async fn two_hundred_at_once_admit_exactly_the_limit<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(10, MINUTE) {
        let rule = bench.rule(quota.algorithm().name());
        let charges = move |_, round| vec![(rule, Key::from(round as u64), quota, 1)];
        let admitted = storm(&bench, Charges { times: 25, charges }).await;
        assert_eq!(admitted, [10; ROUNDS], "{quota}");
    }
}

/// Costs that do not add up to the limit never go above it.
pub async fn mixed_costs_at_once_never_go_above_the_limit<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(100, MINUTE) {
        let rule = bench.caller(quota).rule;
        let charges = move |_, round| vec![(rule, Key::from(round as u64), quota, 7)];
        let admitted = storm(&bench, Charges { times: 10, charges }).await;
        assert_eq!(admitted, [14; ROUNDS], "{quota}");
        for round in 0..ROUNDS as u64 {
            let caller = bench.caller(quota).with_key(round);
            assert_eq!(caller.remaining().await, 2, "{quota}: round {round}");
        }
    }
}

/// Charges, refunds and debits, and counts what is left of that.
struct Settles {
    rule: RuleName,
    quota: Quota,
}

impl<S: Store> Does<S> for Settles {
    async fn act(&self, store: &S, task: usize, round: usize) -> u32 {
        let key = Key::from(round as u64);
        let charge = Charge::new(self.rule, &key, &self.quota);
        let decision = store.charge(&[charge.cost(5)]).await.expect("the store decides");
        let receipt = Receipt::of(&decision, self.rule).expect("there is room for all");
        let refund = Refund::new(self.rule, &key, 3);
        // With the receipt of this charge, or without one.
        let refund = if task.is_multiple_of(2) { refund.receipt(receipt) } else { refund };
        store.refund(&[refund]).await.expect("the store gives back");
        store.debit(&[Debit::new(charge.cost(2))]).await.expect("the store takes what is due");
        4
    }
}

/// Of concurrent refunds and debits nothing is lost, and nothing counts twice. (In a queue, only the last can
/// give back its place.)
pub async fn what_is_given_back_and_taken_at_once_adds_up<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(1_000, MINUTE).into_iter().filter(|quota| quota.algorithm() != Algorithm::LeakyBucket) {
        let rule = bench.caller(quota).rule;
        for (round, used) in (0_u64..).zip(storm(&bench, Settles { rule, quota }).await) {
            let caller = bench.caller(quota).with_key(round);
            assert_eq!(caller.remaining().await, 1_000 - used, "{quota}: round {round}");
        }
    }
}

/// Concurrent requests of several rules, in any order of the rules: the tightest rule decides how many are
/// admitted, and the others are charged for exactly those.
pub async fn several_rules_at_once_are_charged_for_those_admitted<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let quotas = [50, 30, 12, 40, 60].into_iter().enumerate().map(|(i, limit)| each(limit, MINUTE)[i]);
    let rules: Vec<_> = quotas.map(|quota| (bench.caller(quota).rule, quota)).collect();
    let quotas: Vec<_> = rules.iter().map(|(_, quota)| *quota).collect();
    let charges = move |task: usize, round: usize| {
        let own = |(rule, quota): &(RuleName, Quota)| (*rule, Key::from(round as u64), *quota, 1);
        let mut charges: Vec<_> = rules.iter().map(own).collect();
        charges.rotate_left(task % 5);
        if task % 2 == 1 {
            charges.reverse();
        }
        charges
    };
    assert_eq!(storm(&bench, Charges { times: 10, charges }).await, [12; ROUNDS]);
    for quota in quotas {
        for round in 0..ROUNDS as u64 {
            let caller = bench.caller(quota).with_key(round);
            assert_eq!(caller.remaining().await, quota.max() - 12, "{quota}: round {round}");
        }
    }
}

/// A queue gives each of several concurrent requests its own place.
pub async fn a_queue_gives_out_each_place_once<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let caller = bench.caller(Quota::leaky_bucket(1, MINUTE).capacity(50));
    let charge = [caller.cost(1)];
    let answers: Vec<_> = (0..80).map(|_| bench.store.charge(&charge).into_future()).collect();
    let decisions = join_all(answers).await;
    let decisions = decisions.into_iter().map(|answer| answer.expect("the store decides"));
    let mut delays: Vec<_> = decisions.filter(Decision::is_admitted).map(|d| d.delay()).collect();
    delays.sort_unstable();
    assert!(delays.into_iter().eq((0..50).map(|place| place * MINUTE)));
}
