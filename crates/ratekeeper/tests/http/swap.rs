//! Rules that are swapped while requests run.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use ratekeeper::store::StoreErrorKind;
use ratekeeper::{FailurePolicy, IetfDraft, Limiter, Quota, RateLimitLayer, Rule, RuleSet, Share, key};
use tokio::sync::Semaphore;
use tower::{Layer, ServiceExt, service_fn};

use crate::ietf::parse;
use crate::support::held::{call, entries, logged, queue};
use crate::support::stores::Failing;
use crate::support::{App, Reply, ReplyExt, get, limiter, millis, ok, secs};

fn global(name: &str, quota: Quota) -> Rule {
    Rule::new(name, quota).key(key::global())
}

fn set(rules: impl IntoIterator<Item = Rule>) -> RuleSet {
    RuleSet::new(rules).expect("good rules")
}

#[tokio::test]
async fn what_was_used_stays_used_under_the_rule_of_the_same_name() {
    let (limiter, _clock) = limiter([global("api", Quota::per_hour(10)), global("old", Quota::per_hour(1))]);
    let app = App::over(&RateLimitLayer::new(limiter.clone()), ok);
    assert_eq!(limiter.rule_set().version(), None);
    assert!(app.get("/").await.status().is_success());
    assert_eq!(app.get("/").await.status(), StatusCode::TOO_MANY_REQUESTS);

    let before = limiter.swap(set([global("api", Quota::per_hour(3))]).with_version("2"));
    assert_eq!(limiter.rule_set().version(), Some("2"));
    assert!(before.names().map(ratekeeper::store::RuleName::as_str).eq(["api", "old"]));
    assert_eq!(app.admitted(5, || get("/")).await, 2, "one of three was used");

    limiter.swap(before);
    let reply = app.get("/").await;
    assert_eq!(reply.status(), StatusCode::TOO_MANY_REQUESTS, "the other rule comes back as it was left");
    assert_eq!(reply.field("x-ratelimit-limit"), Some("1"));
}

#[tokio::test]
async fn a_rule_that_is_gone_is_unknown_and_one_that_has_come_is_known() {
    let (limiter, _clock) = limiter([global("first", Quota::per_hour(10))]);
    assert!(limiter.charge("first", "alice").await.is_ok());
    limiter.swap(set([global("second", Quota::per_hour(10))]));
    let gone = limiter.charge("first", "alice").await.unwrap_err();
    assert!(gone.to_string().contains("first"), "{gone}");
    assert!(limiter.refund("first", "alice", 1).await.is_err());
    assert!(limiter.reset("first", "alice").await.is_err());
    assert!(limiter.charge("second", "alice").await.is_ok());
}

#[tokio::test]
async fn a_request_that_waits_for_its_tier_is_decided_by_the_set_under_which_it_came() {
    let (asked, go) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let rule = |limit| {
        let (asked, go) = (Arc::clone(&asked), Arc::clone(&go));
        global("api", Quota::per_hour(limit)).tier_by_async(move |_| {
            let (asked, go) = (Arc::clone(&asked), Arc::clone(&go));
            async move {
                asked.add_permits(1);
                go.acquire().await.expect("open").forget();
                None::<&'static str>
            }
        })
    };
    let (limiter, _clock) = limiter([rule(10)]);
    let layer = RateLimitLayer::new(limiter.clone()).ietf_headers(IetfDraft::Draft11);
    let app = App::over(&layer, ok);
    let waiting = tokio::spawn({
        let app = app.clone();
        async move { app.get("/").await }
    });
    asked.acquire().await.expect("open").forget();
    // In the new set its rule has another number.
    limiter.swap(set([global("before", Quota::per_hour(7)), rule(20)]));
    go.add_permits(2);
    let old = waiting.await.expect("no panic");
    assert_eq!(old.lines("ratelimit-policy").join(", "), r#""api";q=10;w=3600"#);
    let new = app.get("/").await;
    assert_eq!(new.lines("ratelimit-policy").join(", "), r#""before";q=7;w=3600, "api";q=20;w=3600"#);
    assert_eq!(new.lines("ratelimit").join(", "), r#""before";r=6;t=515, "api";r=18;t=180"#);
}

#[tokio::test]
async fn what_was_reserved_under_one_set_is_settled_under_it() {
    let (limiter, _clock) = limiter([
        global("first", Quota::per_hour(10)),
        global("tokens", Quota::per_hour(100)).cost(50).free_when(|_| true),
    ]);
    let swapper = limiter.clone();
    let handler = service_fn(move |_: Request<()>| {
        // While the request is being handled.
        swapper.swap(set([global("tokens", Quota::per_hour(200)).cost(50)]));
        std::future::ready(Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())))
    });
    let app = App::around(&RateLimitLayer::new(limiter.clone()), handler);
    assert!(app.get("/").await.status().is_success());
    let left = limiter.charge("tokens", key::Key::GLOBAL).peek().await.expect("no failure");
    assert_eq!(left.outcome("tokens").expect("asked").remaining(), 200, "it was given back");
}

#[tokio::test]
async fn rules_that_decide_locally_can_come_later() {
    let limiter = Limiter::builder()
        .rule(global("api", Quota::per_hour(10)))
        .store(Failing { kind: StoreErrorKind::Unavailable, after: None })
        .build()
        .expect("good rules");
    assert!(limiter.local_store().is_none());
    let app = App::over(&RateLimitLayer::new(limiter.clone()), ok);
    assert_eq!(app.admitted(20, || get("/")).await, 20, "allowed");
    let half = Share::one_of(2);
    limiter.swap(set([global("api", Quota::per_hour(10)).on_store_failure(FailurePolicy::Local(half))]));
    assert_eq!(app.admitted(20, || get("/")).await, 5);
}

/// All requests that wait are served, in the order in which they arrived, whichever set they arrived under.
#[tokio::test(start_paused = true)]
async fn lines_outlive_a_swap() {
    let rule = || global("api", Quota::token_bucket(1, millis(100))).hold_up_to(secs(60));
    let (mut queue, log) = queue([rule()]);
    let mut replies = vec![call(&mut queue, "/a").await, call(&mut queue, "/b").await];
    // In the new set the rule has another number.
    queue.limiter().swap(set([global("other", Quota::per_hour(1_000)), rule()]));
    replies.push(call(&mut queue, "/c").await);
    replies.push(call(&mut queue, "/d").await);
    for reply in join_all(replies).await {
        assert_eq!(reply.unwrap().status(), StatusCode::OK);
    }
    assert_eq!(logged(&log), entries(&[("/a", 0), ("/b", 100), ("/c", 200), ("/d", 300)]));
}

/// Ten thousand rules, of which three match. Their limits identify the set.
fn ten_thousand(generation: u32) -> RuleSet {
    let quota = Quota::fixed_window(1_000_000 + generation, Duration::from_secs(3_600));
    let matching = ["a", "b", "c"].map(|name| global(name, quota));
    let others = (0..9_997).map(|n| global(&format!("other-{n}"), quota).on_path(format!("/other/{n}")));
    set(matching.into_iter().chain(others)).with_version(generation.to_string())
}

fn generations(reply: &Reply) -> Vec<i64> {
    let policies = parse(reply, "ratelimit-policy");
    policies.iter().map(|(_, params)| params[0].1).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_request_is_decided_by_a_mixture_of_two_sets() {
    let first = ten_thousand(0);
    let limiter = Limiter::builder().rule(global("first", Quota::per_hour(1))).build().expect("good rules");
    limiter.swap(first);
    let inner = service_fn(|_: Request<()>| async {
        // Gives others time to swap between the decision and the response.
        tokio::task::yield_now().await;
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let layer = RateLimitLayer::new(limiter.clone()).ietf_headers(IetfDraft::Draft11);
    let service = layer.layer(inner);
    let is_over = Arc::new(AtomicBool::new(false));
    let load: Vec<_> = (0..4)
        .map(|_| {
            let (service, is_over) = (service.clone(), Arc::clone(&is_over));
            tokio::spawn(async move {
                let mut seen = std::collections::BTreeSet::new();
                while !is_over.load(Ordering::Relaxed) {
                    let Ok(reply) = service.clone().oneshot(get("/")).await;
                    assert_eq!(reply.status(), StatusCode::OK);
                    let generations = generations(&reply);
                    assert!(generations.len() == 3, "{generations:?}");
                    assert!(generations.iter().all(|other| *other == generations[0]), "{generations:?}");
                    seen.insert(generations[0]);
                }
                seen
            })
        })
        .collect();
    let swapping = tokio::task::spawn_blocking(move || {
        for generation in 1..=3 {
            let (one, other) = (ten_thousand(2 * generation), ten_thousand(2 * generation + 1));
            for _ in 0..1_000 {
                limiter.swap(one.clone());
                limiter.swap(other.clone());
            }
        }
        limiter.rule_set().version().map(str::to_owned)
    });
    assert_eq!(swapping.await.expect("no panic").as_deref(), Some("7"));
    is_over.store(true, Ordering::Relaxed);
    for task in load {
        let seen = task.await.expect("one set for one request");
        assert!(seen.len() > 2, "saw {seen:?}");
    }
}
