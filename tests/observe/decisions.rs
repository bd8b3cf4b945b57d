//! How decisions are counted.

use std::time::Duration;

use http::StatusCode;
use ratekeeper::{
    FailurePolicy, Limiter, MINUTE, MissingKey, Mode, Quota, RateLimitLayer, Rule, RuleSet, Settle, Share,
    key,
};
use ratekeeper_redis::RedisStore;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::{Recorded, answer, get, limiter, send};

#[tokio::test]
async fn each_decision_is_counted_by_rule_and_outcome() {
    let recorded = Recorded::start();
    let (limiter, _clock) = limiter([Rule::new("api", Quota::per_hour(20))]);
    for _ in 0..25 {
        send(&limiter, get("/")).await;
    }
    assert_eq!(recorded.decisions("api", "enforce", "admitted"), 20.0);
    assert_eq!(recorded.decisions("api", "enforce", "denied"), 5.0);
    // Those with less than two of twenty left: the last two.
    assert_eq!(recorded.value("ratekeeper_near_limit_total{rule=\"api\"}"), 2.0);
    assert_eq!(recorded.value("ratekeeper_keys{store=\"memory\"}"), 1.0);
}

#[tokio::test]
async fn a_recorder_that_is_installed_after_requests_have_come_counts_from_there_on() {
    let (limiter, _clock) = limiter([Rule::new("late", Quota::per_hour(10))]);
    send(&limiter, get("/")).await;
    let recorded = Recorded::start();
    send(&limiter, get("/")).await;
    assert_eq!(recorded.decisions("late", "enforce", "admitted"), 1.0);
    // Rules that are swapped in continue the count.
    limiter.swap(RuleSet::new([Rule::new("late", Quota::per_hour(2))]).expect("good rules"));
    send(&limiter, get("/")).await;
    assert_eq!(recorded.decisions("late", "enforce", "denied"), 1.0);
}

#[tokio::test]
async fn a_rule_that_was_not_charged_because_of_another_says_so() {
    let recorded = Recorded::start();
    let (limiter, _clock) =
        limiter([Rule::new("wide", Quota::per_hour(10)), Rule::new("narrow", Quota::per_hour(1))]);
    assert_eq!(send(&limiter, get("/")).await, StatusCode::OK);
    assert_eq!(send(&limiter, get("/")).await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(recorded.decisions("wide", "enforce", "admitted"), 1.0);
    assert_eq!(recorded.decisions("wide", "enforce", "uncharged"), 1.0);
    assert_eq!(recorded.decisions("narrow", "enforce", "denied"), 1.0);
}

#[tokio::test]
async fn rules_in_shadow_and_candidates_are_counted_apart() {
    let recorded = Recorded::start();
    let (limiter, _clock) = limiter([
        Rule::new("new", Quota::per_hour(1)).mode(Mode::Shadow),
        Rule::new("old", Quota::per_hour(5)).candidate(Quota::per_hour(2)),
    ]);
    for _ in 0..4 {
        assert_eq!(send(&limiter, get("/")).await, StatusCode::OK);
    }
    for (rule, mode, admitted, denied) in
        [("new", "shadow", 1.0, 3.0), ("old", "candidate", 2.0, 2.0), ("old", "enforce", 4.0, 0.0)]
    {
        assert_eq!(recorded.decisions(rule, mode, "admitted"), admitted, "{rule} {mode}");
        assert_eq!(recorded.decisions(rule, mode, "denied"), denied, "{rule} {mode}");
    }
}

#[tokio::test]
async fn what_is_missing_and_what_is_settled_is_counted() {
    let recorded = Recorded::start();
    let keyed = Rule::new("keyed", Quota::per_hour(5))
        .key(key::header("x-api-key").secret())
        .on_missing_key(MissingKey::Deny)
        .on_path("/keyed");
    let back = Rule::new("back", Quota::per_hour(100)).cost(10).on_path("/back").free_when(|_| true);
    let more = Rule::new("more", Quota::per_hour(100)).on_path("/more").settle_by(|_| Settle::Cost(7));
    let (limiter, _clock) = limiter([keyed, back, more]);
    for path in ["/keyed", "/back", "/more"] {
        send(&limiter, get(path)).await;
    }
    assert_eq!(recorded.decisions("keyed", "enforce", "missing_key"), 1.0);
    let settled = |direction: &str, rule: &str| {
        recorded
            .value(&format!("ratekeeper_settled_units_total{{direction=\"{direction}\",rule=\"{rule}\"}}"))
    };
    assert_eq!(settled("given_back", "back"), 10.0);
    assert_eq!(settled("debited", "more"), 6.0);
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_counted_while_it_waits_and_who_cannot_is_refused() {
    let recorded = Recorded::start();
    let (limiter, _clock) = {
        let (clock, rule) = (
            ratekeeper::ManualClock::new(crate::support::START),
            Rule::new("queue", Quota::leaky_bucket(3, MINUTE)),
        );
        let store = ratekeeper::MemoryStore::builder().clock(clock.clone()).build();
        let builder = Limiter::builder().store(store).rule(rule).max_waiting(1);
        (builder.build().expect("good rules"), clock)
    };
    let mut service = RateLimitLayer::new(limiter).layer(service_fn(answer));
    let first = service.ready().await.expect("ready").call(get("/")).await.expect("an answer");
    assert_eq!(first.status(), StatusCode::OK);
    let second = service.ready().await.expect("ready").call(get("/"));
    assert_eq!(recorded.value("ratekeeper_waiting{}"), 1.0);
    let third = service.ready().await.expect("ready").call(get("/")).await.expect("an answer");
    assert_eq!(third.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(second.await.expect("an answer").status(), StatusCode::OK);
    assert_eq!(recorded.value("ratekeeper_waiting{}"), 0.0);
    for (outcome, count) in [("admitted", 1.0), ("delayed", 1.0), ("overloaded", 1.0)] {
        assert_eq!(recorded.decisions("queue", "enforce", outcome), count, "{outcome}");
    }
}

#[tokio::test]
async fn what_is_decided_without_the_store_is_counted_by_what_the_rule_does_then() {
    let recorded = Recorded::start();
    // No server listens there.
    let store = RedisStore::new("redis://127.0.0.1:1").expect("an address");
    let local = Rule::new("local", Quota::per_hour(4)).on_path("/local");
    let limiter = Limiter::builder()
        .store(store)
        .rule(Rule::new("open", Quota::per_hour(5)).on_path("/open").on_store_failure(FailurePolicy::Allow))
        .rule(Rule::new("shut", Quota::per_hour(5)).on_path("/shut").on_store_failure(FailurePolicy::Deny))
        .rule(local.on_store_failure(FailurePolicy::Local(Share::one_of(4))))
        .build()
        .expect("good rules");
    for path in ["/open", "/shut", "/local", "/local"] {
        send(&limiter, get(path)).await;
    }
    limiter.charge("open", "job").await.expect_err("the store fails");
    for (rule, outcome) in [
        ("open", "allowed_by_failure"),
        ("open", "undecided"),
        ("shut", "denied_by_failure"),
        ("local", "local_admitted"),
        ("local", "local_denied"),
    ] {
        assert_eq!(recorded.decisions(rule, "enforce", outcome), 1.0, "{rule} {outcome}");
    }
    assert_eq!(recorded.value("ratekeeper_store_errors_total{kind=\"breaker_open\",store=\"redis\"}"), 5.0);
}

#[tokio::test]
async fn evictions_are_published_by_the_requests_that_come() {
    let recorded = Recorded::start();
    let clock = ratekeeper::ManualClock::new(crate::support::START);
    let store = ratekeeper::MemoryStore::builder().clock(clock.clone()).max_keys(100).build();
    let rule = Rule::new("many", Quota::per_hour(10)).manual();
    let limiter = Limiter::builder().store(store.clone()).rule(rule).build().expect("good rules");
    for caller in 0..5_000_u64 {
        limiter.charge("many", caller.to_string().as_str()).await.expect("it works");
    }
    clock.advance(Duration::from_secs(2));
    limiter.charge("many", "last").await.expect("it works");
    let evicted = recorded.value("ratekeeper_evictions_total{store=\"memory\"}");
    assert_eq!(evicted, store.evicted() as f64);
    assert!(evicted > 4_000.0, "{evicted}");
    let keys = recorded.value("ratekeeper_keys{store=\"memory\"}");
    assert_eq!(keys, store.len() as f64);
    drop(limiter);
    assert_eq!(recorded.value("ratekeeper_keys{store=\"memory\"}"), 0.0);
}
