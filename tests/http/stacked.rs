//! Layers within layers.

use http::StatusCode;
use tollgate::{IetfDraft, Quota, RateLimitLayer, Rule, key};

use crate::ietf::parse;
use crate::support::{App, Layered, ReplyExt, SECOND, get, limiter};

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
    // Two are left in the inner layer, none in the outer: but it is the inner that denies.
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
