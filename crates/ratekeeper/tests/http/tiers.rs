//! Quotas that depend on the caller.

use http::StatusCode;
use ratekeeper::{MissingKey, Quota, RequestHead, Rule, Tier, TierChoice, key};

use crate::support::{App, ReplyExt, RequestExt, get, secs};

/// What an outer layer knows about the caller.
#[derive(Clone)]
struct Plan(&'static str);

fn plan(head: &RequestHead<'_>) -> Option<&'static str> {
    head.extension::<Plan>().map(|plan| plan.0)
}

fn tiered() -> Rule {
    Rule::new("api", Quota::per_minute(2))
        .key(key::header("x-user"))
        .tier("pro", Quota::per_minute(5))
        .tier("enterprise", Tier::Unlimited)
}

fn user(user: &'static str, plan: &'static str) -> http::Request<()> {
    get("/").header("x-user", user).extension(Plan(plan))
}

#[tokio::test]
async fn a_callers_tier_has_a_quota_of_its_own() {
    let app = App::new([tiered().tier_by(plan)]);
    assert_eq!(app.admitted(10, || get("/").header("x-user", "nobody")).await, 2);
    assert_eq!(app.admitted(10, || user("free", "free")).await, 2);
    assert_eq!(app.admitted(10, || user("pro", "pro")).await, 5);
    let reply = app.send(user("other", "pro")).await;
    assert_eq!((reply.trio().unwrap().0, reply.trio().unwrap().1), (5, 4));
}

#[tokio::test]
async fn a_tier_without_a_limit_is_not_counted_at_all() {
    let app = App::new([tiered().tier_by(plan)]);
    assert_eq!(app.admitted(100, || user("acme", "enterprise")).await, 100);
    let reply = app.send(user("acme", "enterprise")).await;
    assert_eq!(reply.trio(), None);
    assert!(reply.extensions().get::<ratekeeper::Decision>().is_none());
}

/// Such a caller does not need the key that others must have.
#[tokio::test]
async fn whom_a_tier_does_not_limit_is_not_refused_for_want_of_a_key() {
    let rule = Rule::new("api", Quota::per_hour(1))
        .key(key::header("x-api-key"))
        .on_missing_key(MissingKey::Deny)
        .tier_by(|head| head.path().starts_with("/free").then_some(Tier::Unlimited));
    let app = App::new([rule]);
    assert_eq!(app.get("/free").await.status(), StatusCode::OK);
    assert_eq!(app.get("/").await.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test]
async fn other_rules_count_whom_a_tier_does_not_limit() {
    let app = App::new([tiered().tier_by(plan), Rule::new("all", Quota::per_minute(3)).key(key::global())]);
    assert_eq!(app.admitted(10, || user("acme", "enterprise")).await, 3);
}

#[tokio::test]
async fn a_tier_that_nobody_told_the_rule_about_is_limited_as_any_caller() {
    let app = App::new([tiered().tier_by(|_| "platinum")]);
    assert_eq!(app.admitted(10, || get("/").header("x-user", "x")).await, 2);
    let app = App::new([tiered().tier_by(|_| String::from("PRO"))]);
    assert_eq!(app.admitted(10, || get("/").header("x-user", "x")).await, 2);
}

#[tokio::test]
async fn a_tier_may_be_looked_up() {
    let app = App::new([tiered().tier_by_async(|head| {
        let plan = plan(head);
        async move {
            tokio::time::sleep(std::time::Duration::ZERO).await;
            plan
        }
    })]);
    assert_eq!(app.admitted(10, || user("free", "free")).await, 2);
    assert_eq!(app.admitted(10, || user("pro", "pro")).await, 5);
    assert_eq!(app.admitted(10, || user("acme", "enterprise")).await, 10);
}

#[tokio::test]
async fn key_and_tier_may_both_be_looked_up() {
    let rule = tiered()
        .key(key::from_async_fn(|head| {
            let user = head.headers().get("x-user").cloned();
            async move {
                user.map(|user| user.as_bytes().to_vec()).map(|user| ratekeeper::Key::from(user.as_slice()))
            }
        }))
        .tier_by_async(|head| std::future::ready(plan(head)));
    let app = App::new([rule, Rule::new("all", Quota::per_minute(9)).key(key::global())]);
    assert_eq!(app.admitted(10, || user("free", "free")).await, 2);
    assert_eq!(app.admitted(10, || user("pro", "pro")).await, 5);
    assert_eq!(app.admitted(10, || user("acme", "enterprise")).await, 2);
}

#[tokio::test]
async fn a_quota_may_be_made_for_one_caller_alone() {
    let app = App::new([tiered().tier_by(|head| {
        let limit = head.headers().get("x-limit").and_then(|limit| limit.to_str().ok()?.parse().ok());
        limit.map(Quota::per_minute)
    })]);
    let with = |limit: &'static str| move || get("/").header("x-user", limit).header("x-limit", limit);
    assert_eq!(app.admitted(10, with("7")).await, 7);
    assert_eq!(app.admitted(10, with("3")).await, 3);
    assert_eq!(app.admitted(10, with("x")).await, 2);

    let app = App::new([tiered().tier_by(|_| Tier::Unlimited)]);
    assert_eq!(app.admitted(10, || get("/")).await, 10);
    let app = App::new([tiered().tier_by(|_| TierChoice::Default)]);
    assert_eq!(app.admitted(10, || get("/")).await, 2);
}

#[tokio::test]
async fn a_made_up_quota_that_makes_no_sense_denies_and_does_not_panic() {
    let app = App::new([tiered().tier_by(|_| Quota::per_second(0))]);
    let reply = app.get("/").await;
    assert_eq!(reply.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(reply.field("retry-after"), None);
}

#[tokio::test]
async fn changing_tiers_keeps_what_was_used() {
    let app = App::new([tiered().tier_by(plan)]);
    assert_eq!(app.admitted(10, || user("alice", "free")).await, 2);
    // After the upgrade, two of five are used. After the downgrade, five of two are.
    assert_eq!(app.admitted(10, || user("alice", "pro")).await, 3);
    assert_eq!(app.admitted(10, || user("alice", "free")).await, 0);
    // And the caller is not locked for longer than the new quota takes to refill.
    app.clock.advance(secs(60));
    assert_eq!(app.admitted(10, || user("alice", "free")).await, 2);
}

#[tokio::test]
async fn an_excursion_to_no_limit_does_not_wipe_what_was_used() {
    let app = App::new([tiered().tier_by(plan)]);
    assert_eq!(app.admitted(10, || user("alice", "free")).await, 2);
    assert_eq!(app.admitted(10, || user("alice", "enterprise")).await, 10);
    assert_eq!(app.admitted(10, || user("alice", "free")).await, 0);
}
