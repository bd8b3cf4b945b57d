//! Rules in shadow, candidates, and swapped rules, with counters in Redis.

use std::convert::Infallible;
use std::time::Instant;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use ratekeeper::{
    HOUR, Key, Limiter, Limits, Quota, RateLimitLayer, Rule, RuleSet, Store, key, store::Charge,
};
use ratekeeper_redis::RedisStore;
use tower::util::BoxCloneService;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{PATIENCE, own_server, patient, ready, rule as name, shared_server};

type App = BoxCloneService<Request<()>, Response<Full<Bytes>>, Infallible>;

/// A path that is a number sets the final cost of the request, if there is a rule that is settled.
fn app(limiter: Limiter) -> App {
    let inner = service_fn(|request: Request<()>| {
        if let (Ok(cost), Some(limits)) =
            (request.uri().path()[1..].parse(), Limits::of(request.extensions()))
        {
            limits.settle("shadow", cost).expect("there is such a rule");
        }
        std::future::ready(Ok(Response::default()))
    });
    BoxCloneService::new(RateLimitLayer::new(limiter).layer(inner))
}

async fn status(app: &App, path: &str) -> StatusCode {
    let request = Request::builder().uri(path).body(()).expect("a request");
    let Ok(reply) = app.clone().oneshot(request).await;
    reply.status()
}

async fn left(store: &RedisStore, rule: &str, quota: &Quota) -> u32 {
    let decision = store.peek(&[Charge::new(name(rule), &Key::GLOBAL, quota)]).await.expect("Redis works");
    decision.outcome(rule).expect("it was asked").remaining()
}

/// Waits until this much is left: only the tests wait for what is in shadow.
async fn until_left(store: &RedisStore, rule: &str, quota: &Quota, expected: u32) {
    let started = Instant::now();
    loop {
        let left = left(store, rule, quota).await;
        if left == expected {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{left} are left of {rule} and not {expected}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_is_in_shadow_is_counted_by_the_whole_fleet_and_denies_nobody() {
    let quota = Quota::fixed_window(20, HOUR);
    let (mut stores, mut apps) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let store = ready(patient(shared_server()).prefix("shadow")).await;
        let global = |name: &str| Rule::new(name, quota).key(key::global());
        let limiter = Limiter::builder()
            .store(store.clone())
            .rule(global("shadow").shadow())
            .rule(global("enforced").candidate(Quota::fixed_window(5, HOUR)))
            .build()
            .expect("good rules");
        stores.push(store);
        apps.push(app(limiter));
    }
    for n in 0..12 {
        assert_eq!(status(&apps[n % 2], "/").await, StatusCode::OK);
    }
    until_left(&stores[0], "shadow", &quota, 8).await;
    assert_eq!(left(&stores[1], "enforced", &quota).await, 8);
    until_left(&stores[1], "enforced~candidate", &Quota::fixed_window(5, HOUR), 0).await;
    let mut admitted = 12;
    for n in 0..20 {
        admitted += usize::from(status(&apps[n % 2], "/").await == StatusCode::OK);
    }
    assert_eq!(admitted, 20, "by the rule that is enforced");
    until_left(&stores[0], "shadow", &quota, 0).await;
}

#[tokio::test]
async fn what_is_in_shadow_is_settled_when_redis_has_answered() {
    let quota = Quota::fixed_window(100, HOUR);
    let store = ready(patient(shared_server()).prefix("shadow-settled")).await;
    let limiter = Limiter::builder()
        .store(store.clone())
        .rule(Rule::new("shadow", quota).key(key::global()).cost(10).settle_in_handler().shadow())
        .build()
        .expect("good rules");
    let app = app(limiter);
    for (path, expected) in [("/3", 97), ("/30", 67), ("/0", 67), ("/10", 57)] {
        assert_eq!(status(&app, path).await, StatusCode::OK);
        until_left(&store, "shadow", &quota, expected).await;
    }
}

#[tokio::test]
async fn a_rule_in_shadow_minds_no_redis_that_is_gone() {
    let server = own_server();
    let store = ready(patient(&server)).await;
    let limiter = Limiter::builder()
        .store(store.clone())
        .rule(
            Rule::new("shadow", Quota::per_hour(1))
                .on_store_failure(ratekeeper::FailurePolicy::Deny)
                .shadow(),
        )
        .build()
        .expect("good rules");
    let app = app(limiter);
    assert_eq!(status(&app, "/").await, StatusCode::OK);
    server.kill().expect("it can be killed");
    for _ in 0..10 {
        assert_eq!(status(&app, "/").await, StatusCode::OK);
    }
}

#[tokio::test]
async fn a_swap_on_one_node_changes_its_limit_and_not_what_was_used() {
    let rules = |limit| [Rule::new("api", Quota::fixed_window(limit, HOUR)).key(key::global())];
    let node = async || {
        let store = ready(patient(shared_server()).prefix("swapped")).await;
        Limiter::builder().store(store).rules(rules(10)).build().expect("good rules")
    };
    let (one, other) = (node().await, node().await);
    let (at_one, at_other) = (app(one.clone()), app(other));
    for _ in 0..10 {
        assert_eq!(status(&at_other, "/").await, StatusCode::OK);
    }
    // Denied by Redis, and from here on from memory, until the rule changes.
    assert_eq!(status(&at_one, "/").await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(status(&at_one, "/").await, StatusCode::TOO_MANY_REQUESTS);
    let before = one.swap(RuleSet::new(rules(12)).expect("good rules"));
    let mut admitted = 0;
    for _ in 0..5 {
        admitted += usize::from(status(&at_one, "/").await == StatusCode::OK);
    }
    assert_eq!(admitted, 2);
    one.swap(before);
    assert_eq!(status(&at_one, "/").await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(status(&at_other, "/").await, StatusCode::TOO_MANY_REQUESTS);
}
