//! Rules that decide in this process when the store cannot.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use http::{Request, StatusCode};
use ratekeeper::store::{RuleName, StoreErrorKind};
use ratekeeper::{
    ConfigError, Decision, FailurePolicy, HOUR, IetfDraft, Limiter, MINUTE, Quota, RateLimitLayer, Rule,
    Share, StoreError, Tier, TierChoice, key,
};
use tokio::time::Instant;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::stores::{Failing, Flaky};
use crate::support::{App, Reply, ReplyExt, RequestExt, clock, get, json, memory, millis, ok};

const QUARTER: FailurePolicy = FailurePolicy::Local(Share::one_of(4));

/// A hundred in any hour, and a quarter of that while the store is gone.
fn rule(name: &str) -> Rule {
    Rule::new(name, Quota::sliding_log(100, HOUR)).key(key::global()).on_store_failure(QUARTER)
}

fn flaky(rules: impl IntoIterator<Item = Rule>) -> (Limiter, Flaky) {
    let store = Flaky::new(memory(&clock()));
    (Limiter::builder().store(store.clone()).rules(rules).build().unwrap(), store)
}

/// An app whose store is gone.
fn failing(rules: impl IntoIterator<Item = Rule>) -> (App, Limiter) {
    let (limiter, store) = flaky(rules);
    store.fail(true);
    (App::over(&RateLimitLayer::new(limiter.clone()).ietf_headers(IetfDraft::Draft11), tell), limiter)
}

/// Reports what it sees in the request's extensions.
#[expect(clippy::needless_pass_by_value, reason = "as a handler has it")]
fn tell(request: Request<()>) -> Reply {
    let mut reply = ok(Request::new(()));
    let extensions = request.extensions();
    let error = extensions.get().map_or("none".to_owned(), |error: &StoreError| error.to_string());
    reply.headers_mut().insert("x-store-error", error.parse().unwrap());
    if let Some(decision) = extensions.get::<Decision>() {
        let rules: Vec<_> = decision.outcomes().map(|(rule, _)| rule.as_str()).collect();
        reply.headers_mut().insert("x-decided-by", rules.join(" ").parse().unwrap());
    }
    reply
}

#[tokio::test]
async fn a_node_admits_its_share_and_tells_of_it() {
    let (app, _) = failing([rule("r")]);
    for left in (0..25).rev() {
        let reply = app.get("/").await;
        assert_eq!(reply.status(), StatusCode::OK);
        let (limit, remaining, _) = reply.trio().unwrap();
        assert_eq!((limit, remaining), (25, left));
        assert_eq!(reply.field("ratelimit-policy"), Some("\"r\";q=25;w=3600"));
        assert_eq!(reply.decision().outcome("r").unwrap().remaining(), left);
        // The handler can tell that the store did not decide.
        assert_eq!(reply.field("x-store-error"), Some("the store is unavailable"));
        assert_eq!(reply.field("x-decided-by"), Some("r"));
    }
    let denied = app.get("/").await;
    assert_eq!(denied.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!((denied.trio().unwrap().0, denied.trio().unwrap().1), (25, 0));
    assert_eq!(denied.field("cache-control"), Some("no-store"));
    let wait: u64 = denied.field("retry-after").unwrap().parse().unwrap();
    assert!((3_590..=3_600).contains(&wait), "{wait}");
    assert!(!denied.decision().is_admitted());
    assert!(denied.extensions().get::<StoreError>().is_some());
    let body = json(denied).await;
    assert_eq!((&body["error"], &body["rule"]), (&"rate_limited".into(), &"r".into()));
    assert_eq!(app.calls(), 25);
}

#[tokio::test]
async fn each_key_has_its_own_share() {
    let (app, _) = failing([rule("r").key(key::peer_ip())]);
    assert_eq!(app.admitted(30, || get("/").peer("192.0.2.1")).await, 25);
    assert_eq!(app.admitted(30, || get("/").peer("192.0.2.2")).await, 25);
}

#[tokio::test(start_paused = true)]
async fn it_does_not_matter_how_the_store_fails() {
    for after in [None, Some(millis(5))] {
        let store = Failing { kind: StoreErrorKind::Timeout, after };
        let limiter = Limiter::builder().store(store).rule(rule("r")).build().unwrap();
        let app = App::over(&RateLimitLayer::new(limiter), ok);
        assert_eq!(app.admitted(30, || get("/")).await, 25);
    }
}

#[tokio::test]
async fn the_store_decides_whenever_it_can() {
    let (limiter, store) = flaky([rule("r")]);
    let app = App::over(&RateLimitLayer::new(limiter.clone()), tell);
    assert_eq!(app.admitted(10, || get("/")).await, 10);
    assert_eq!(limiter.local_store().unwrap().len(), 0);
    store.fail(true);
    assert_eq!(app.admitted(30, || get("/")).await, 25);
    store.fail(false);
    let reply = app.get("/").await;
    assert_eq!(reply.field("x-store-error"), Some("none"));
    assert_eq!((reply.trio().unwrap().0, reply.trio().unwrap().1), (100, 89));
    // Then the store was told what this process had decided.
    assert_eq!(app.admitted(100, || get("/")).await, 89 - 25);
    // And what was used of the share stays used.
    store.fail(true);
    assert_eq!(app.admitted(5, || get("/")).await, 0);
}

/// A store that fails every other time, with a share that is as large as the quota.
#[tokio::test]
async fn a_store_that_flaps_does_not_double_the_limit() {
    let rule = Rule::new("r", Quota::per_hour(100)).key(key::global());
    let (limiter, store) = flaky([rule.on_store_failure(FailurePolicy::Local(Share::one_of(1)))]);
    let app = App::over(&RateLimitLayer::new(limiter), ok);
    let mut admitted = 0;
    for n in 0..400 {
        store.fail(n % 2 == 0);
        admitted += app.admitted(1, || get("/")).await;
    }
    // Once the store denies, this process admits what is left of its own share, of which half was used.
    assert!((100..=150).contains(&admitted), "{admitted}");
}

/// What was given back in this process is not debited.
#[tokio::test]
async fn what_was_given_back_locally_is_not_owed() {
    let rule = Rule::new("r", Quota::per_hour(100)).key(key::global()).cost(10).free_when(|_| true);
    let (limiter, store) = flaky([rule.on_store_failure(FailurePolicy::Local(Share::one_of(2)))]);
    let app = App::over(&RateLimitLayer::new(limiter.clone()), ok);
    store.fail(true);
    assert_eq!(app.admitted(20, || get("/")).await, 20);
    store.fail(false);
    assert_eq!(app.admitted(2, || get("/")).await, 2);
    let left = limiter.charge("r", ratekeeper::Key::GLOBAL).peek().await.unwrap();
    assert_eq!(left.outcome("r").unwrap().remaining(), 100);
}

#[tokio::test]
async fn rules_that_decide_locally_decide_together() {
    let (app, limiter) = failing([rule("all"), rule("few").key(key::path()).cost(5)]);
    assert_eq!(app.admitted(7, || get("/a")).await, 5);
    // What `few` denied was not charged to `all`.
    let left = limiter.charge("all", ratekeeper::Key::GLOBAL).peek().await.unwrap();
    assert_eq!(left.outcome("all").unwrap().remaining(), 20);
    let denied = app.get("/a").await;
    assert_eq!(denied.lines("ratelimit-policy"), ["\"all\";q=25;w=3600", "\"few\";q=25;w=3600"]);
    assert_eq!(denied.decision().denied_by().map(RuleName::as_str).collect::<Vec<_>>(), ["few"]);
}

#[tokio::test]
async fn a_rule_that_denies_prevails_and_nothing_is_charged() {
    let strict = || rule("strict").on_store_failure(FailurePolicy::Deny).on_path("/login");
    for rules in [[rule("r"), strict()], [strict(), rule("r")]] {
        let (app, limiter) = failing(rules);
        let reply = app.get("/login").await;
        assert_eq!(reply.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(json(reply).await["rule"], "strict");
        assert_eq!(limiter.local_store().unwrap().len(), 0);
        assert_eq!(app.admitted(30, || get("/")).await, 25);
    }
}

#[tokio::test]
async fn rules_that_allow_have_no_say_then() {
    let (app, _) = failing([
        Rule::new("lax", Quota::per_hour(1)).key(key::global()),
        rule("r").on_path("/counted"),
        Rule::new("lax-too", Quota::per_hour(1)).key(key::global()),
    ]);
    let reply = app.get("/counted").await;
    assert_eq!(reply.field("x-decided-by"), Some("r"));
    assert_eq!(reply.lines("ratelimit-policy"), ["\"r\";q=25;w=3600"]);
    assert_eq!(app.admitted(30, || get("/counted")).await, 24);
    // On their own, they admit every request, and nothing is reported.
    let reply = app.get("/").await;
    assert_eq!((reply.status(), reply.trio()), (StatusCode::OK, None));
    assert_eq!(reply.field("x-decided-by"), None);
    assert_eq!(reply.field("x-store-error"), Some("the store is unavailable"));
}

#[tokio::test]
async fn tiers_have_their_shares() {
    let by_tier = |head: &ratekeeper::RequestHead<'_>| -> TierChoice {
        match head.path() {
            "/pro" => "pro".into(),
            "/staff" => "staff".into(),
            "/own" => Quota::sliding_log(40, HOUR).into(),
            _ => TierChoice::Default,
        }
    };
    let (app, _) = failing([rule("r")
        .key(key::path())
        .tier("pro", Quota::sliding_log(200, HOUR))
        .tier("staff", Tier::Unlimited)
        .tier_by(by_tier)]);
    for (path, admitted) in [("/", 25), ("/pro", 50), ("/staff", 60), ("/own", 10)] {
        assert_eq!(app.admitted(60, || get(path)).await, admitted, "{path}");
    }
    assert_eq!(app.get("/own").await.field("ratelimit-policy"), Some("\"r\";q=10;w=3600"));
}

#[tokio::test]
async fn a_cost_that_only_the_whole_quota_can_hold_is_503_and_not_for_ever() {
    let cost = |head: &ratekeeper::RequestHead<'_>| head.path()[1..].parse().unwrap();
    let (app, limiter) = failing([rule("r").cost_by(cost)]);
    assert_eq!(app.get("/10").await.status(), StatusCode::OK);
    let reply = app.get("/26").await;
    assert_eq!(reply.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(reply.field("retry-after"), Some("1"));
    // A working store could not admit it either.
    let never = app.get("/101").await;
    assert_eq!(never.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(never.field("retry-after"), None);
    let left = limiter.charge("r", ratekeeper::Key::GLOBAL).peek().await.unwrap();
    assert_eq!(left.outcome("r").unwrap().remaining(), 15);
}

#[test]
fn a_fixed_cost_above_the_share_is_refused() {
    let with = |rule: Rule| Limiter::builder().rule(rule).build();
    assert!(with(rule("r").cost(25)).is_ok());
    let error = with(rule("r").cost(26)).unwrap_err();
    assert!(matches!(&error, ConfigError::CostAboveShare { cost: 26, max: 25, .. }), "{error:?}");
    let says = "rule `r`: a request costs 26, but 1/4 of the quota never holds more than 25";
    assert!(error.to_string().starts_with(says), "{error}");
    let error = with(rule("r").cost(20).tier("free", Quota::per_hour(40))).unwrap_err();
    assert!(error.to_string().starts_with("rule `r`, tier `free`: a request costs 20"), "{error}");
}

#[tokio::test]
async fn what_is_not_exposed_is_told_all_the_same() {
    let (limiter, store) = flaky([rule("r")]);
    store.fail(true);
    let reply = App::over(&RateLimitLayer::new(limiter).expose_decision(false), tell).get("/").await;
    assert_eq!((reply.trio().unwrap().0, reply.field("x-decided-by")), (25, None));
    assert!(reply.extensions().get::<Decision>().is_none());
    assert_eq!(reply.field("x-store-error"), Some("the store is unavailable"));
}

#[tokio::test(start_paused = true)]
async fn leaky_buckets_hold_requests_back() {
    // A quarter of four a second and a queue of twelve is one a second and a queue of three.
    let rule = Rule::new("queue", Quota::leaky_bucket(4, millis(1_000)).capacity(12)).key(key::global());
    let store = Failing { kind: StoreErrorKind::Unavailable, after: None };
    let limiter = Limiter::builder().store(store).rule(rule.on_store_failure(QUARTER)).build().unwrap();
    let (log, start) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
    let logged = Arc::clone(&log);
    let inner = service_fn(move |request: Request<()>| {
        logged.lock().unwrap().push((request.uri().path().to_owned(), start.elapsed().as_millis()));
        std::future::ready(Ok::<_, Infallible>(ok(request)))
    });
    let mut service = RateLimitLayer::new(limiter).layer(inner);
    let mut replies = Vec::new();
    for path in ["/a", "/b", "/c", "/d"] {
        replies.push(service.ready().await.unwrap().call(get(path)));
    }
    // The last in the queue goes away, and leaves its place to another.
    drop(replies.remove(2));
    replies.push(service.ready().await.unwrap().call(get("/e")));
    let replies = join_all(replies).await;
    let statuses: Vec<_> = replies.iter().map(|reply| reply.as_ref().unwrap().status().as_u16()).collect();
    assert_eq!(statuses, [200, 200, 429, 200]);
    // Measured by the clock of the process, on which a little time has passed in between.
    let log = log.lock().unwrap();
    let [(a, at_a), (b, at_b), (e, at_e)] = &log[..] else { panic!("{log:?}") };
    assert_eq!([a, b, e], ["/a", "/b", "/e"]);
    assert!(*at_a == 0 && (500..=1_001).contains(at_b) && (1_500..=2_001).contains(at_e), "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn what_would_take_too_long_locally_is_not_waited_for() {
    let store = Flaky::new(memory(&clock()));
    store.fail(true);
    let rule = Rule::new("rule", Quota::per_hour(2))
        .key(key::global())
        .on_store_failure(FailurePolicy::Local(Share::one_of(2)))
        .hold_up_to(MINUTE);
    let limiter = Limiter::builder().store(store).rule(rule).build().unwrap();
    let app = App::over(&RateLimitLayer::new(limiter), ok);
    assert_eq!(app.get("/").await.status(), StatusCode::OK);
    let start = Instant::now();
    assert_eq!(app.get("/").await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(start.elapsed(), millis(0));
}
