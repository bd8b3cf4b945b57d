//! The limiter without HTTP, when its store fails.

use std::time::Duration;

use ratekeeper::{FailurePolicy, HOUR, Limiter, LimiterError, Quota, Rule, Share};

use crate::support::stores::Flaky;
use crate::support::{clock, memory};

/// One rule for each policy.
fn limiter() -> (Limiter, Flaky) {
    let store = Flaky::new(memory(&clock()));
    let rule = |name, policy| Rule::new(name, Quota::sliding_log(8, HOUR)).on_store_failure(policy);
    let limiter = Limiter::builder()
        .rule(rule("local", FailurePolicy::Local(Share::one_of(4))))
        .rule(rule("half", FailurePolicy::Local(Share::one_of(2))))
        .rule(rule("allow", FailurePolicy::Allow))
        .rule(rule("deny", FailurePolicy::Deny))
        .store(store.clone())
        .build();
    store.fail(true);
    (limiter.unwrap(), store)
}

#[tokio::test]
async fn rules_that_decide_locally_do_so() {
    let (limiter, store) = limiter();
    for left in [1, 0] {
        let decision = limiter.charge("local", "alice").await.unwrap();
        let outcome = decision.outcome("local").unwrap();
        assert_eq!((outcome.limit(), outcome.remaining()), (2, left));
    }
    assert!(!limiter.charge("local", "alice").await.unwrap().is_admitted());
    assert!(limiter.charge("local", "bob").await.unwrap().is_admitted());
    store.fail(false);
    assert_eq!(limiter.charge("local", "alice").await.unwrap().outcome("local").unwrap().remaining(), 7);
}

#[tokio::test]
async fn otherwise_whoever_charges_is_told_that_the_store_fails() {
    let (limiter, _) = limiter();
    for charge in [
        limiter.charge("allow", "alice"),
        limiter.charge("deny", "alice"),
        limiter.charge("allow", "alice").and("deny", "alice"),
        limiter.charge("local", "alice").and("deny", "alice"),
        limiter.charge("local", "alice").cost(3),
    ] {
        let error = charge.clone().await.unwrap_err();
        assert!(matches!(error, LimiterError::Store(_)), "{error:?}");
        assert!(matches!(charge.peek().await, Err(LimiterError::Store(_))));
    }
    assert_eq!(limiter.local_store().unwrap().len(), 0, "nothing was charged");
}

#[tokio::test]
async fn they_decide_together_and_those_that_allow_have_no_say() {
    let (limiter, _) = limiter();
    let all = limiter.charge("local", "alice").and("allow", "alice").and("half", "alice");
    for _ in 0..2 {
        let decision = all.clone().await.unwrap();
        let rules: Vec<_> = decision.outcomes().map(|(rule, _)| rule.as_str()).collect();
        assert_eq!((decision.is_admitted(), rules), (true, vec!["local", "half"]));
    }
    assert!(!all.clone().await.unwrap().is_admitted());
    // Peeking changes nothing, and a denial is not charged.
    for _ in 0..2 {
        let looked = limiter.charge("half", "alice").peek().await.unwrap();
        assert_eq!(looked.outcome("half").unwrap().remaining(), 2);
    }
}

#[tokio::test]
async fn resetting_forgets_what_was_charged_locally() {
    let (limiter, store) = limiter();
    limiter.charge("local", "alice").cost(2).await.unwrap();
    assert!(limiter.reset("local", "alice").await.is_err(), "the store has not heard of it");
    assert!(limiter.charge("local", "alice").cost(2).await.unwrap().is_admitted());
    store.fail(false);
    limiter.reset("local", "alice").await.unwrap();
    store.fail(true);
    assert!(limiter.charge("local", "alice").cost(2).await.unwrap().is_admitted());
}

#[tokio::test]
async fn there_is_a_store_for_it_only_if_a_rule_wants_it_and_it_is_bounded() {
    let plain = Limiter::builder().rule(Rule::new("r", Quota::per_hour(1))).max_local_keys(1).build();
    assert!(plain.unwrap().local_store().is_none());
    let (limiter, _) = limiter();
    assert_eq!(limiter.local_store().unwrap().max_keys(), 1_000_000);
    let local = Rule::new("r", Quota::per_hour(8)).on_store_failure(FailurePolicy::Local(Share::WHOLE));
    let store = Flaky::new(memory(&clock()));
    store.fail(true);
    let limiter = Limiter::builder().max_local_keys(10).rule(local).store(store).build().unwrap();
    for user in 0..1_000 {
        assert!(limiter.charge("r", user.to_string()).await.unwrap().is_admitted());
    }
    assert!(limiter.local_store().unwrap().len() <= 10);
}

#[tokio::test(start_paused = true)]
async fn whoever_has_no_time_to_wait_behind_others_is_decided_locally_too() {
    let (limiter, store) = limiter();
    store.fail(false);
    assert!(limiter.charge("local", "alice").cost(8).await.unwrap().is_admitted());
    let first = tokio::spawn(limiter.charge("local", "alice").until_ready());
    while limiter.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    store.fail(true);
    let second = limiter.charge("allow", "alice").and("local", "alice").ready_within(Duration::from_secs(1));
    let outcome = *second.await.unwrap().outcome("local").unwrap();
    assert_eq!((outcome.limit(), outcome.remaining()), (2, 1));
    first.abort();
}
