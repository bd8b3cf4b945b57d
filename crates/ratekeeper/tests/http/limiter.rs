//! The limiter without HTTP.

use std::error::Error;

use ratekeeper::store::{RuleName, StoreErrorKind};
use ratekeeper::{Key, Limiter, LimiterError, MINUTE, Quota, RateLimitLayer, Retry, Rule, Tier, key};

use crate::support::stores::Failing;
use crate::support::{App, ReplyExt, RequestExt, get, limiter, ok, secs};

fn rules() -> [Rule; 3] {
    [
        Rule::new("messages", Quota::fixed_window(3, MINUTE))
            .tier("pro", Quota::fixed_window(5, MINUTE))
            .tier("staff", Tier::Unlimited)
            .manual(),
        Rule::new("bytes", Quota::per_minute(1_000)).cost(10),
        Rule::new("log", Quota::sliding_log(3, MINUTE)),
    ]
}

async fn remaining(limiter: &Limiter, rule: &str, key: &str) -> u32 {
    let peeked = limiter.charge(rule, key).cost(0).peek().await.unwrap();
    peeked.outcome(rule).unwrap().remaining()
}

#[tokio::test]
async fn a_charge_counts_against_its_key_alone() {
    let (limiter, clock) = limiter(rules());
    for left in [2, 1, 0] {
        let decision = limiter.charge("messages", "alice").await.unwrap();
        assert!(decision.is_admitted());
        assert_eq!(decision.outcome("messages").unwrap().remaining(), left);
    }
    let denied = limiter.charge("messages", "alice").await.unwrap();
    assert!(!denied.is_admitted());
    // 20.25 s into the window.
    assert_eq!(denied.retry(), Some(Retry::After(std::time::Duration::from_millis(39_750))));
    assert!(limiter.charge("messages", "bob").await.unwrap().is_admitted());
    clock.advance(secs(40));
    assert!(limiter.charge("messages", "alice").await.unwrap().is_admitted());
}

#[tokio::test]
async fn several_charges_are_made_together_or_not_at_all() {
    let (limiter, _) = limiter(rules());
    let decision = limiter.charge("messages", "alice").and("bytes", "alice").cost(400).await.unwrap();
    assert!(decision.is_admitted());
    assert_eq!(decision.outcomes().map(|(rule, _)| rule.as_str()).collect::<Vec<_>>(), ["messages", "bytes"]);
    assert_eq!(decision.outcome("bytes").unwrap().remaining(), 600);
    let denied = limiter.charge("messages", "alice").and("bytes", "alice").cost(601).await.unwrap();
    assert!(!denied.is_admitted());
    assert_eq!(denied.denied_by().map(RuleName::as_str).collect::<Vec<_>>(), ["bytes"]);
    assert_eq!(remaining(&limiter, "messages", "alice").await, 2);
    assert_eq!(remaining(&limiter, "bytes", "alice").await, 600);
}

#[tokio::test]
async fn the_same_key_named_twice_is_charged_the_sum() {
    let (limiter, _) = limiter(rules());
    let twice = limiter.charge("messages", "alice").cost(2).and("messages", "alice").cost(2);
    assert!(!twice.clone().await.unwrap().is_admitted());
    assert_eq!(remaining(&limiter, "messages", "alice").await, 3);
    let twice = limiter.charge("messages", "alice").and("messages", "alice").cost(2);
    assert!(twice.await.unwrap().is_admitted());
    assert_eq!(remaining(&limiter, "messages", "alice").await, 0);
}

#[tokio::test]
async fn a_charge_costs_what_its_rule_says_unless_it_is_said() {
    let (limiter, _) = limiter(rules());
    limiter.charge("bytes", "alice").await.unwrap();
    assert_eq!(remaining(&limiter, "bytes", "alice").await, 990);
    limiter.charge("bytes", "alice").cost(90).await.unwrap();
    assert_eq!(remaining(&limiter, "bytes", "alice").await, 900);
    let never = limiter.charge("bytes", "alice").cost(1_001).await.unwrap();
    assert_eq!(never.retry(), Some(Retry::Never));
}

#[tokio::test]
async fn nothing_is_charged_until_it_is_awaited() {
    let (limiter, _) = limiter(rules());
    let charge = limiter.charge("messages", "alice");
    drop(charge.clone());
    drop(charge.clone().into_future());
    assert_eq!(remaining(&limiter, "messages", "alice").await, 3);
    charge.await.unwrap();
    assert_eq!(remaining(&limiter, "messages", "alice").await, 2);
}

#[tokio::test]
async fn looking_changes_nothing() {
    let (limiter, _) = limiter(rules());
    for _ in 0..10 {
        let peeked = limiter.charge("messages", "alice").and("bytes", "alice").peek().await.unwrap();
        assert!(peeked.is_admitted());
        assert_eq!(peeked.outcome("messages").unwrap().remaining(), 3);
    }
    assert!(!limiter.charge("messages", "alice").cost(4).peek().await.unwrap().is_admitted());
}

#[tokio::test]
async fn a_tier_is_named_with_the_charge() {
    let (limiter, _) = limiter(rules());
    for _ in 0..5 {
        assert!(limiter.charge("messages", "alice").tier("pro").await.unwrap().is_admitted());
    }
    assert!(!limiter.charge("messages", "alice").tier("pro").await.unwrap().is_admitted());
    for _ in 0..10 {
        let decision = limiter.charge("messages", "root").tier("staff").await.unwrap();
        assert!(decision.is_admitted());
        assert_eq!(decision.outcomes().len(), 0);
    }
    // The tier applies to the charge named last.
    let both =
        limiter.charge("messages", "bob").and("messages", "carol").tier("staff").cost(100).await.unwrap();
    assert!(both.is_admitted());
    assert_eq!(both.outcome("messages").unwrap().remaining(), 2);
}

#[tokio::test]
async fn what_is_given_back_can_be_used_again_and_is_never_more_than_there_was() {
    let (limiter, _) = limiter(rules());
    for rule in ["messages", "log", "bytes"] {
        limiter.charge(rule, "alice").cost(3).await.unwrap();
        limiter.refund(rule, "alice", 2).await.unwrap();
        assert!(limiter.charge(rule, "alice").cost(2).await.unwrap().is_admitted(), "{rule}");
        limiter.refund(rule, "alice", 1_000_000).await.unwrap();
        limiter.refund(rule, "nobody", 5).await.unwrap();
        let limit = if rule == "bytes" { 1_000 } else { 3 };
        assert_eq!(remaining(&limiter, rule, "alice").await, limit, "{rule}");
        assert_eq!(remaining(&limiter, rule, "nobody").await, limit, "{rule}");
    }
}

#[tokio::test]
async fn a_reset_forgets_one_key_under_one_rule() {
    let (limiter, _) = limiter(rules());
    for rule in ["messages", "log"] {
        for key in ["alice", "bob"] {
            limiter.charge(rule, key).cost(3).await.unwrap();
        }
    }
    limiter.reset("messages", "alice").await.unwrap();
    assert_eq!(remaining(&limiter, "messages", "alice").await, 3);
    assert_eq!(remaining(&limiter, "messages", "bob").await, 0);
    assert_eq!(remaining(&limiter, "log", "alice").await, 0);
}

#[tokio::test]
async fn an_unknown_rule_or_tier_is_an_error_that_names_it_and_charges_nothing() {
    let (limiter, _) = limiter(rules());
    let errors = [
        limiter.charge("massages", "alice").await.unwrap_err(),
        limiter.charge("massages", "alice").peek().await.unwrap_err(),
        limiter.charge("messages", "alice").and("massages", "alice").await.unwrap_err(),
        limiter.refund("massages", "alice", 1).await.unwrap_err(),
        limiter.reset("massages", "alice").await.unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(&error, LimiterError::UnknownRule(rule) if rule == "massages"));
        assert_eq!(error.to_string(), "there is no rule named `massages`");
    }
    let error = limiter.charge("messages", "alice").tier("Pro").await.unwrap_err();
    assert!(matches!(&error, LimiterError::UnknownTier { rule, .. } if rule == "messages"));
    assert!(error.to_string().contains("`messages` has no tier named"), "{error}");
    assert_eq!(remaining(&limiter, "messages", "alice").await, 3);
}

#[tokio::test]
async fn a_store_that_fails_is_an_error_and_never_a_denial() {
    let store = Failing { kind: StoreErrorKind::Timeout, after: None };
    let limiter = Limiter::builder().store(store).rules(rules()).build().unwrap();
    let errors = [
        limiter.charge("messages", "alice").await.unwrap_err(),
        limiter.charge("messages", "alice").peek().await.unwrap_err(),
        limiter.refund("messages", "alice", 1).await.unwrap_err(),
        limiter.reset("messages", "alice").await.unwrap_err(),
    ];
    for error in errors {
        let LimiterError::Store(store) = &error else { panic!("{error:?}") };
        assert!(store.is_timeout());
        assert_eq!(error.to_string(), "the store did not answer in time");
        assert_eq!(error.source().unwrap().to_string(), "the cable was cut at redis.internal:6379");
    }
}

#[tokio::test]
async fn the_layer_and_the_limiter_count_together() {
    let (limiter, _) = limiter([Rule::new("user", Quota::per_minute(3)).key(key::header("x-user").secret())]);
    let app = App::over(&RateLimitLayer::new(limiter.clone()), ok);
    let alice = || get("/").header("x-user", "alice");
    app.send(alice()).await;
    assert!(limiter.charge("user", Key::secret("alice")).await.unwrap().is_admitted());
    assert_eq!(app.send(alice()).await.trio().unwrap().1, 0);
    assert_eq!(app.admitted(1, alice).await, 0);
    limiter.reset("user", Key::secret("alice")).await.unwrap();
    assert_eq!(app.admitted(5, alice).await, 3);
    limiter.refund("user", Key::secret("alice"), 1).await.unwrap();
    assert_eq!(app.admitted(5, alice).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_never_get_more_than_there_is() {
    let (limiter, _) = limiter(rules());
    let tasks: Vec<_> = (0..200)
        .map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move { limiter.charge("bytes", "all").and("log", "all").await })
        })
        .collect();
    let mut admitted = 0;
    for task in tasks {
        admitted += u32::from(task.await.unwrap().unwrap().is_admitted());
    }
    assert_eq!(admitted, 3);
    assert_eq!(remaining(&limiter, "bytes", "all").await, 970);
}
