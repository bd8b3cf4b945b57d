//! Layers within layers.

use std::convert::Infallible;

use http::{HeaderValue, Request, StatusCode};
use ratekeeper::{IetfDraft, Quota, RateLimitLayer, RequestHead, Rule, key, rejection::RejectionReason};
use tower::service_fn;

use crate::ietf::parse;
use crate::support::{App, Layered, Reply, ReplyExt, SECOND, get, limiter};

fn rule(name: &str, quota: Quota) -> Rule {
    Rule::new(name, quota).key(key::global())
}

fn layer(rule: Rule) -> Layered {
    RateLimitLayer::new(limiter([rule]).0).ietf_headers(IetfDraft::Draft11)
}

fn app(rule: Rule) -> App {
    App::with([rule], |layer| layer.ietf_headers(IetfDraft::Draft11))
}

#[tokio::test]
async fn the_ietf_fields_list_the_rules_of_all_layers() {
    let app = app(rule("inner", Quota::per_minute(60))).within(&layer(rule("outer", Quota::per_hour(100))));
    let reply = app.get("/").await;
    assert_eq!(reply.lines("ratelimit-policy"), [r#""inner";q=60;w=60"#, r#""outer";q=100;w=3600"#]);
    assert_eq!(reply.lines("ratelimit"), [r#""inner";r=59;t=1"#, r#""outer";r=99;t=36"#]);
    assert_eq!(parse(&reply, "ratelimit").len(), 2);
}

#[tokio::test]
async fn the_three_speak_for_the_tighter_of_the_layers() {
    let inner_tighter =
        app(rule("inner", Quota::per_minute(60))).within(&layer(rule("outer", Quota::per_hour(100))));
    assert_eq!(inner_tighter.get("/").await.trio(), Some((60, 59, SECOND + 2)));
    let outer_tighter =
        app(rule("inner", Quota::per_hour(100))).within(&layer(rule("outer", Quota::per_minute(60))));
    assert_eq!(outer_tighter.get("/").await.trio(), Some((60, 59, SECOND + 2)));
}

#[tokio::test]
async fn a_denial_by_the_outer_layer_does_not_reach_the_inner() {
    let app = app(rule("inner", Quota::per_minute(60))).within(&layer(rule("outer", Quota::per_minute(1))));
    assert_eq!(app.admitted(3, || get("/")).await, 1);
    let reply = app.get("/").await;
    assert_eq!(reply.trio(), Some((1, 0, SECOND + 61)));
    assert_eq!(reply.lines("ratelimit"), [r#""outer";r=0;t=60"#]);
    assert_eq!(app.calls(), 1);
}

#[tokio::test]
async fn a_denial_by_the_inner_layer_is_what_the_response_tells() {
    // Two are left in the inner layer and none in the outer, but it is the inner layer that denies.
    let app = app(rule("inner", Quota::per_minute(2)).cost_by(|_| 3))
        .within(&layer(rule("outer", Quota::per_minute(1))));
    let reply = app.get("/").await;
    assert_eq!(reply.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(reply.trio(), Some((2, 2, SECOND + 1)));
    assert!(!reply.decision().is_admitted());
    assert_eq!(reply.decision().denied_by().next().unwrap().as_str(), "inner");
    assert_eq!(reply.lines("ratelimit"), [r#""inner";r=2"#, r#""outer";r=0;t=60"#]);
    assert_eq!(app.calls(), 0);
}

#[tokio::test]
async fn layers_over_one_limiter_charge_it_twice() {
    let (limiter, _) = limiter([rule("r", Quota::per_minute(10))]);
    let app = App::over(&RateLimitLayer::new(limiter.clone()), crate::support::ok);
    let app = app.within(&RateLimitLayer::new(limiter));
    assert_eq!(app.get("/").await.trio().unwrap().1, 8);
}

/// The response to a request that the inner of two layers denies and the outer admits.
async fn denied_within(inner: impl FnOnce(Layered) -> Layered) -> Reply {
    let app = App::with([rule("inner", Quota::per_hour(8)).cost_by(|_| 9)], inner);
    // Less is left in the outer layer than in the inner, but it is the inner layer that denies.
    let reply =
        app.within(&RateLimitLayer::new(limiter([rule("outer", Quota::per_day(4))]).0)).get("/").await;
    assert_eq!(reply.status(), StatusCode::TOO_MANY_REQUESTS);
    reply
}

#[tokio::test]
async fn a_denial_by_an_inner_layer_that_keeps_it_to_itself_has_its_own_figures() {
    let exposed = denied_within(|layer| layer).await;
    let reply = denied_within(|layer| layer.expose_decision(false)).await;
    assert_eq!((reply.trio(), reply.trio().unwrap().0), (exposed.trio(), 8));
    // The inner layer's decision stays hidden, and that of the outer layer is exposed.
    assert_eq!(reply.decision().outcomes().next().unwrap().0.as_str(), "outer");
}

#[tokio::test]
async fn a_denial_by_an_inner_layer_without_figures_is_not_given_those_of_a_rule_that_admits() {
    for exposed in [true, false] {
        let reply = denied_within(|layer| layer.x_ratelimit_headers(false).expose_decision(exposed)).await;
        assert_eq!(reply.trio(), None);
    }
    // Nor if a denial is not a 429.
    let teapot = |_: &RequestHead<'_>, _: &RejectionReason<'_>| -> Reply {
        let mut reply = Reply::default();
        *reply.status_mut() = StatusCode::IM_A_TEAPOT;
        reply
    };
    let app = App::with([rule("inner", Quota::per_hour(8)).cost_by(|_| 9)], |layer| {
        layer.expose_decision(false).rejection(teapot)
    });
    let reply =
        app.within(&RateLimitLayer::new(limiter([rule("outer", Quota::per_day(4))]).0)).get("/").await;
    assert_eq!((reply.status(), reply.trio().unwrap().0), (StatusCode::IM_A_TEAPOT, 8));
    // Nor through a layer in between.
    let inner = App::with([rule("inner", Quota::per_hour(1)).cost_by(|_| 9)], |layer| {
        layer.x_ratelimit_headers(false).expose_decision(false)
    });
    let outer = |name| RateLimitLayer::new(limiter([rule(name, Quota::per_day(4))]).0);
    let reply = inner.within(&outer("between")).within(&outer("outer")).get("/").await;
    assert_eq!((reply.status(), reply.trio()), (StatusCode::TOO_MANY_REQUESTS, None));
}

/// The response with these fields, behind a layer with a limit of ten, of which nine are left.
async fn told(status: StatusCode, fields: &'static [(&'static str, &'static str)]) -> Reply {
    let handler = service_fn(move |_: Request<()>| async move {
        let mut reply = Reply::default();
        *reply.status_mut() = status;
        for (name, value) in fields {
            reply.headers_mut().insert(*name, HeaderValue::from_static(value));
        }
        Ok::<_, Infallible>(reply)
    });
    App::around(&RateLimitLayer::new(limiter([rule("r", Quota::per_hour(10))]).0), handler).get("/").await
}

const THREE: [(&str, &str); 3] =
    [("x-ratelimit-remaining", "20"), ("x-ratelimit-limit", "30"), ("x-ratelimit-reset", "7")];

#[tokio::test]
async fn a_429_of_the_handlers_own_keeps_the_figures_that_it_has() {
    assert_eq!(told(StatusCode::TOO_MANY_REQUESTS, &THREE).await.trio(), Some((30, 20, 7)));
    let reply = told(StatusCode::TOO_MANY_REQUESTS, &[THREE[0]]).await;
    assert_eq!((reply.field(THREE[0].0), reply.field(THREE[1].0)), (Some("20"), None));
    // Without figures, it is a response like any other, and gets those of the layer.
    assert_eq!(told(StatusCode::TOO_MANY_REQUESTS, &[]).await.trio().unwrap().0, 10);
    assert_eq!(told(StatusCode::OK, &THREE).await.trio().unwrap().0, 10);
}

#[tokio::test]
async fn the_three_are_of_the_rule_or_of_the_handler_and_never_of_both() {
    // According to the handler fewer are left, but its figures are incomplete.
    for fields in [&[("x-ratelimit-remaining", "3")][..], &[("x-ratelimit-remaining", "3"), THREE[1]]] {
        let (limit, remaining, _) = told(StatusCode::OK, fields).await.trio().unwrap();
        assert_eq!((limit, remaining), (10, 9), "{fields:?}");
    }
    let all = &[("x-ratelimit-remaining", "3"), THREE[1], THREE[2]];
    assert_eq!(told(StatusCode::OK, all).await.trio(), Some((30, 3, 7)));
}

/// Two forms of one field would make all of it unreadable.
#[tokio::test]
async fn what_a_handler_writes_in_another_form_of_the_ietf_fields_is_replaced() {
    fn older(_: Request<()>) -> Reply {
        let mut reply = crate::support::ok(Request::new(()));
        let headers = reply.headers_mut();
        headers.insert("ratelimit", HeaderValue::from_static("limit=100, remaining=50, reset=5"));
        headers.insert("ratelimit-policy", HeaderValue::from_static("100;w=10"));
        reply
    }
    fn only_policy(_: Request<()>) -> Reply {
        let mut reply = crate::support::ok(Request::new(()));
        reply.headers_mut().append("ratelimit-policy", HeaderValue::from_static("\"theirs\";q=1"));
        reply.headers_mut().append("ratelimit-policy", HeaderValue::from_static("10, 10;w=1, 50;w=60"));
        reply
    }
    fn same(_: Request<()>) -> Reply {
        let mut reply = crate::support::ok(Request::new(()));
        reply.headers_mut().insert("ratelimit", HeaderValue::from_static(" \"theirs\";r=7"));
        reply
    }
    for handler in [older, only_policy] {
        let app = App::over(&layer(rule("inner", Quota::per_minute(60))), handler);
        let reply = app.within(&layer(rule("outer", Quota::per_hour(100)))).get("/").await;
        let names = |name| parse(&reply, name).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names("ratelimit"), ["inner", "outer"]);
        assert_eq!(names("ratelimit-policy"), ["inner", "outer"]);
    }
    // What a handler writes in the same form is added to.
    let app = App::over(&layer(rule("r", Quota::per_minute(60))), same);
    let reply = app.get("/").await;
    assert_eq!(parse(&reply, "ratelimit").len(), 2);
    // Without fields of ours, those of the handler stay.
    let app = App::over(&RateLimitLayer::new(limiter([rule("r", Quota::per_minute(60))]).0), older);
    assert_eq!(app.get("/").await.lines("ratelimit"), ["limit=100, remaining=50, reset=5"]);
}
