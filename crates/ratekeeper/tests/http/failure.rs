//! When the store cannot decide.

use http::{Request, StatusCode};
use ratekeeper::store::StoreErrorKind;
use ratekeeper::{
    Decision, FailurePolicy, IetfDraft, Limiter, MissingKey, Quota, RateLimitLayer, RequestHead, Rule,
    StoreError, key, rejection::RejectionReason,
};

use crate::support::stores::Failing;
use crate::support::{App, Reply, ReplyExt, RequestExt, body, get, json, millis, ok};

const NOW: Failing = Failing { kind: StoreErrorKind::Unavailable, after: None };
const LATER: Failing = Failing { kind: StoreErrorKind::Timeout, after: Some(millis(5)) };

fn rule(name: &str, failure: FailurePolicy) -> Rule {
    Rule::new(name, Quota::per_minute(5)).key(key::global()).on_store_failure(failure)
}

fn limiter(store: Failing, rules: impl IntoIterator<Item = Rule>) -> Limiter {
    Limiter::builder().store(store).rules(rules).build().unwrap()
}

fn app(store: Failing, rules: impl IntoIterator<Item = Rule>) -> App {
    let layer = RateLimitLayer::new(limiter(store, rules)).ietf_headers(IetfDraft::Draft11);
    App::over(&layer, |request| {
        let mut reply = ok(Request::new(()));
        let error = request.extensions().get::<StoreError>();
        let kind = error.map_or("none".to_owned(), |error| format!("{:?}", error.kind()));
        reply.headers_mut().insert("x-store-error", kind.parse().unwrap());
        assert!(request.extensions().get::<Decision>().is_none());
        reply
    })
}

#[tokio::test(start_paused = true)]
async fn requests_go_on_unless_it_is_said_and_the_handler_can_tell() {
    for (store, kind) in [(NOW, "Unavailable"), (LATER, "Timeout")] {
        let app = app(store, [Rule::new("r", Quota::per_minute(1)).key(key::global())]);
        for _ in 0..3 {
            let reply = app.get("/").await;
            assert_eq!(reply.status(), StatusCode::OK);
            assert_eq!(reply.field("x-store-error"), Some(kind));
            // Nothing is known, so nothing is reported.
            assert_eq!((reply.trio(), reply.lines("ratelimit").len()), (None, 0));
            assert!(reply.extensions().get::<Decision>().is_none());
        }
        assert_eq!(app.calls(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_denies_then_answers_503_and_never_429() {
    for store in [NOW, LATER] {
        let app = app(store, [rule("r", FailurePolicy::Deny)]);
        let reply = app.get("/").await;
        assert_eq!(reply.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(reply.field("retry-after"), Some("1"));
        assert_eq!(reply.field("cache-control"), Some("no-store"));
        assert_eq!((reply.trio(), reply.lines("ratelimit").len()), (None, 0));
        assert!(reply.extensions().get::<Decision>().is_none());
        assert!(reply.extensions().get::<StoreError>().is_some());
        let json = json(reply).await;
        assert_eq!(json["error"], "unavailable");
        assert_eq!(json["retry_after_seconds"], 1);
        assert_eq!(json["rule"], "r");
        assert_eq!(app.calls(), 0);
    }
}

#[tokio::test]
async fn of_rules_that_want_different_things_one_that_denies_prevails() {
    for (a, b, status) in [
        (FailurePolicy::Allow, FailurePolicy::Allow, StatusCode::OK),
        (FailurePolicy::Allow, FailurePolicy::Deny, StatusCode::SERVICE_UNAVAILABLE),
        (FailurePolicy::Deny, FailurePolicy::Allow, StatusCode::SERVICE_UNAVAILABLE),
    ] {
        assert_eq!(app(NOW, [rule("a", a), rule("b", b)]).get("/").await.status(), status);
    }
}

#[tokio::test]
async fn only_the_rules_that_match_have_a_say() {
    let app =
        app(NOW, [rule("all", FailurePolicy::Allow), rule("login", FailurePolicy::Deny).on_path("/login")]);
    assert_eq!(app.get("/").await.status(), StatusCode::OK);
    assert_eq!(app.get("/login").await.status(), StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn what_needs_no_store_is_decided_without_it() {
    let skip = rule("r", FailurePolicy::Deny).key(key::header("x-user")).on_missing_key(MissingKey::Skip);
    assert_eq!(app(NOW, [skip]).get("/").await.status(), StatusCode::OK);
    let deny = rule("r", FailurePolicy::Allow).key(key::header("x-user")).on_missing_key(MissingKey::Deny);
    assert_eq!(app(NOW, [deny]).get("/").await.status(), StatusCode::TOO_MANY_REQUESTS);
    let preflight = get("/").header("origin", "https://x").header("access-control-request-method", "GET");
    let (mut parts, ()) = preflight.into_parts();
    parts.method = http::Method::OPTIONS;
    let preflight = Request::from_parts(parts, ());
    assert_eq!(app(NOW, [rule("r", FailurePolicy::Deny)]).send(preflight).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_client_is_not_told_what_is_wrong_inside() {
    let layer = RateLimitLayer::new(limiter(NOW, [rule("r", FailurePolicy::Deny)]));
    for app in [App::over(&layer.clone(), ok), App::over(&layer.problem_details(), ok)] {
        let reply = app.get("/").await;
        let headers = format!("{:?}", reply.headers());
        let body = body(reply).await;
        assert!(!format!("{headers} {body}").contains("redis"), "{headers} {body}");
    }
}

#[tokio::test]
async fn as_a_problem_it_is_reduced_capacity() {
    let layer = RateLimitLayer::new(limiter(NOW, [rule("r", FailurePolicy::Deny)])).problem_details();
    let reply = App::over(&layer, ok).get("/").await;
    assert_eq!(reply.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(reply.field("content-type"), Some("application/problem+json"));
    assert_eq!(reply.field("retry-after"), Some("1"));
    assert_eq!(reply.field("cache-control"), Some("no-store"));
    let json = json(reply).await;
    assert_eq!(json["type"], "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity");
    assert_eq!(json["status"], 503);
    assert_eq!(json["retry_after_seconds"], 1);
    assert_eq!(json["violated-policies"], serde_json::json!(["r"]));
    assert!(json["title"].is_string());
}

#[tokio::test]
async fn a_rejection_of_ones_own_can_tell_a_failure_from_a_denial() {
    let rejection = |_: &RequestHead<'_>, refusal: &RejectionReason<'_>| -> Reply {
        let RejectionReason::Unavailable { error, rule } = refusal else { panic!("not denied") };
        assert_eq!(rule.as_str(), "r");
        assert!(error.is_unavailable() && !error.is_timeout());
        let mut reply = ok(Request::new(()));
        *reply.status_mut() = StatusCode::IM_A_TEAPOT;
        reply
    };
    let layer = RateLimitLayer::new(limiter(NOW, [rule("r", FailurePolicy::Deny)])).rejection(rejection);
    let reply = App::over(&layer, ok).get("/").await;
    assert_eq!(reply.status(), StatusCode::IM_A_TEAPOT);
    assert_eq!(reply.field("retry-after"), Some("1"));
    assert_eq!(reply.field("cache-control"), Some("no-store"));
}
