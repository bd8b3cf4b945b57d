//! What one node does takes effect on the others: immediately where Redis is asked, and where a denial is
//! remembered, once it no longer is.

use std::time::{Duration, Instant};

use ratekeeper_core::{Charge, DAY, Quota, Receipt, Refund, RuleName, Store};
use ratekeeper_redis::RedisStore;

use crate::support::{PATIENCE, each, patient, ready, rule, shared_server};

/// So long that no window ends before 2029.
const PERIOD: Duration = Duration::from_secs(3_650 * 86_400);

async fn node(prefix: &str, denial_cache_ttl: Duration) -> RedisStore {
    ready(patient(shared_server()).prefix(prefix).denial_cache_ttl(denial_cache_ttl)).await
}

async fn admits(store: &RedisStore, rule: RuleName, quota: &Quota, cost: u32) -> bool {
    let decided = store.charge(&[Charge::new(rule, "alice", quota).cost(cost)]).await;
    decided.expect("the store decides").is_admitted()
}

async fn remaining(store: &RedisStore, rule: RuleName, quota: &Quota) -> u32 {
    let peeked = store.peek(&[Charge::new(rule, "alice", quota)]).await.expect("the store looks");
    peeked.outcome(rule.as_str()).expect("it was asked").remaining()
}

/// Gives back 3 of 10, or resets the key.
async fn ease(store: &RedisStore, rule: RuleName, receipt: Receipt, reset: bool) {
    if reset {
        store.reset(rule, "alice".into()).await.expect("the store forgets");
    } else {
        let refund = [Refund::new(rule, "alice", 3).receipt(receipt)];
        store.refund(&refund).await.expect("the store gives back");
    }
}

/// Uses up a budget, and returns the receipt of the charge.
async fn use_up(store: &RedisStore, rule: RuleName, quota: &Quota) -> Receipt {
    let decision =
        store.charge(&[Charge::new(rule, "alice", quota).cost(10)]).await.expect("the store decides");
    Receipt::of(&decision, rule).expect("it was admitted")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peek_sees_what_was_charged_elsewhere() {
    let (here, there) = (node("peeks", DAY).await, node("peeks", DAY).await);
    for quota in each(10, PERIOD) {
        let rule = rule(quota.algorithm().name());
        assert_eq!(remaining(&here, rule, &quota).await, 10, "{quota}");
        let receipt = use_up(&there, rule, &quota).await;
        assert_eq!(remaining(&here, rule, &quota).await, 0, "{quota}");
        assert!(!admits(&here, rule, &quota, 1).await, "{quota}");
        ease(&there, rule, receipt, false).await;
        // A denial that is remembered here does not affect a peek.
        assert_eq!(remaining(&here, rule, &quota).await, 3, "{quota}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_given_back_here_takes_effect_at_once() {
    for (prefix, reset) in [("here-refund", false), ("here-reset", true)] {
        let here = node(prefix, DAY).await;
        for quota in each(10, PERIOD) {
            let rule = rule(quota.algorithm().name());
            let receipt = use_up(&here, rule, &quota).await;
            assert!(!admits(&here, rule, &quota, 1).await, "{quota}");
            ease(&here, rule, receipt, reset).await;
            assert!(admits(&here, rule, &quota, 3).await, "{quota}");
            assert_eq!(admits(&here, rule, &quota, 1).await, reset, "{quota}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_given_back_elsewhere_takes_effect_when_the_denial_is_forgotten() {
    for (prefix, reset) in [("there-refund", false), ("there-reset", true)] {
        for denial_cache_ttl in [Duration::ZERO, Duration::from_millis(150)] {
            let (here, there) = (node(prefix, denial_cache_ttl).await, node(prefix, denial_cache_ttl).await);
            for quota in each(10, PERIOD) {
                let rule = rule(&format!("{}-{}", quota.algorithm(), denial_cache_ttl.as_millis()));
                let receipt = use_up(&here, rule, &quota).await;
                let asked = Instant::now();
                assert!(!admits(&here, rule, &quota, 1).await, "{quota}");
                ease(&there, rule, receipt, reset).await;
                // The denial was requested after `asked`, and answered by now.
                let answered = Instant::now();
                loop {
                    let now = Instant::now();
                    if admits(&here, rule, &quota, 1).await {
                        break;
                    }
                    assert!(now < answered + denial_cache_ttl, "{quota}: denied after {:?}", now - asked);
                    assert!(now < asked + PATIENCE, "{quota}");
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_quota_is_not_denied_for_what_the_old_one_denied() {
    let here = node("changed", DAY).await;
    for quota in each(10, PERIOD) {
        let rule = rule(quota.algorithm().name());
        use_up(&here, rule, &quota).await;
        assert!(!admits(&here, rule, &quota, 1).await, "{quota}");
        for raised in each(30, PERIOD) {
            let peeked = remaining(&here, rule, &raised).await;
            assert_eq!(peeked, 20, "{quota}, then {raised}");
        }
        let raised = each(30, PERIOD).into_iter().find(|raised| raised.algorithm() == quota.algorithm());
        assert!(admits(&here, rule, &raised.expect("each has them all"), 20).await, "{quota}");
    }
}
