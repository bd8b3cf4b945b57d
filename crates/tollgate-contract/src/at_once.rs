//! Many at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tollgate_core::{Charge, Decision, Key, MINUTE, Quota, RuleName, Store};

use crate::join::join_all;
use crate::{Bench, Harness, each};

/// Starts `tasks` tasks, each on a store of its own, each charging all `charges` together `times` times
/// without waiting in between, and says how many were admitted.
async fn storm<H: Harness>(
    bench: &Bench<H>,
    tasks: usize,
    times: usize,
    charges: impl Fn(usize) -> Vec<(RuleName, Key, Quota, u32)>,
) -> u32 {
    let admitted = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..tasks)
        .map(|task| {
            let (store, admitted, charges) = (bench.harness.store(), Arc::clone(&admitted), charges(task));
            bench.harness.spawn(async move {
                let charges: Vec<_> = charges
                    .iter()
                    .map(|(rule, key, quota, cost)| Charge::new(*rule, key, quota).cost(*cost))
                    .collect();
                let answers = (0..times).map(|_| store.charge(&charges).into_future());
                for answer in join_all(answers.collect::<Vec<_>>()).await {
                    if answer.expect("the store decides").is_admitted() {
                        admitted.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    join_all(tasks).await;
    admitted.load(Ordering::Relaxed)
}

/// Of two hundred at once on one key, exactly the limit is admitted.
pub async fn two_hundred_at_once_admit_exactly_the_limit<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(10, MINUTE) {
        let rule = bench.rule(quota.algorithm().name());
        let admitted = storm(&bench, 8, 25, |_| vec![(rule, Key::GLOBAL, quota, 1)]).await;
        assert_eq!(admitted, 10, "{quota}");
    }
}

/// Costs that do not add up to the limit never go above it.
pub async fn mixed_costs_at_once_never_go_above_the_limit<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    for quota in each(100, MINUTE) {
        let caller = bench.caller(quota).with_key(());
        let admitted = storm(&bench, 8, 10, |_| vec![(caller.rule, Key::GLOBAL, quota, 7)]).await;
        assert_eq!(admitted, 14, "{quota}");
        assert_eq!(caller.remaining().await, 2, "{quota}");
    }
}

/// Requests of several rules at once, in any order of the rules: the tightest rule decides how many are
/// admitted, and the others are charged for exactly those.
pub async fn several_rules_at_once_are_charged_for_those_admitted<H: Harness>(harness: H) {
    let bench = Bench::new(harness).await;
    let quotas = [50, 30, 12, 40, 60].into_iter().zip(each(1, MINUTE));
    let callers: Vec<_> = quotas
        .map(|(limit, quota)| {
            let algorithm = quota.algorithm();
            let quota = each(limit, MINUTE).into_iter().find(|quota| quota.algorithm() == algorithm);
            bench.caller(quota.expect("each has them all"))
        })
        .collect();
    let charges = |task: usize| {
        let mut charges: Vec<_> = callers.iter().map(|c| (c.rule, c.key, c.quota, 1)).collect();
        charges.rotate_left(task % 5);
        if task % 2 == 1 {
            charges.reverse();
        }
        charges
    };
    assert_eq!(storm(&bench, 10, 10, charges).await, 12);
    for caller in &callers {
        assert_eq!(caller.remaining().await, caller.quota.max() - 12, "{}", caller.quota);
    }
}

/// A queue gives each of those who come at once a place of its own.
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
