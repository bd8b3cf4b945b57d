//! What a handler can know about the limits of its request.

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use axum::routing::any;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use ratekeeper::store::StoreErrorKind;
use ratekeeper::{Limiter, Limits, MissingKey, Quota, RateLimitLayer, Rule, Tier, key};
use tower::{ServiceExt, service_fn};

use crate::support::stores::Failing;
use crate::support::{App, Layered, Reply, limiter};

fn rule(name: &str) -> Rule {
    Rule::new(name, Quota::per_hour(10)).key(key::global())
}

fn layer(rule: Rule) -> Layered {
    RateLimitLayer::new(limiter([rule]).0)
}

/// A handler that reports which rules have counted its request.
fn app() -> Router {
    async fn counted(limits: Limits) -> String {
        let rules: Vec<_> = limits.outcomes().map(|(rule, _)| rule.as_str()).collect();
        format!("{} {}", limits.decision().is_some(), rules.join(","))
    }
    Router::new().fallback(any(counted))
}

async fn told(app: Router, request: http::request::Builder) -> (StatusCode, String) {
    let Ok(response) = app.oneshot(request.body(Body::empty()).unwrap()).await;
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn assert_uncounted(layer: RateLimitLayer, request: http::request::Builder) {
    assert_eq!(told(app().layer(layer), request).await, (StatusCode::OK, "false ".to_owned()));
}

/// Nothing that a client sends or omits causes a 500.
#[tokio::test]
async fn a_handler_has_its_limits_also_where_nobody_counts() {
    let by_user = rule("r").key(key::header("user")).on_missing_key(MissingKey::Skip);
    let unlimited = || rule("r").tier("all", Tier::Unlimited);
    for rule in [
        by_user.clone(),
        by_user.when(|_| true),
        rule("r").on_path("/other"),
        rule("r").when(|_| false),
        unlimited().tier_by(|_| Some("all")),
        unlimited().tier_by_async(|_| async { Some("all") }),
        rule("r").key(key::from_async_fn(|_| async { None::<&str> })).on_missing_key(MissingKey::Skip),
        rule("r").shadow(),
        rule("r").shadow().show_in_shadow(true),
    ] {
        assert_uncounted(layer(rule), Request::get("/")).await;
    }
    let preflight =
        Request::options("/").header("origin", "x").header("access-control-request-method", "GET");
    assert_uncounted(layer(rule("r")), preflight).await;
    assert_eq!(told(app().layer(layer(rule("r"))), Request::get("/")).await.1, "true r");
}

#[tokio::test]
async fn a_handler_has_its_limits_while_the_store_fails() {
    for after in [None, Some(crate::support::millis(1))] {
        let failing = Failing { kind: StoreErrorKind::Unavailable, after };
        let limiter = Limiter::builder().store(failing).rule(rule("r")).build().unwrap();
        assert_uncounted(RateLimitLayer::new(limiter), Request::get("/")).await;
    }
}

#[tokio::test]
async fn there_are_none_where_nothing_is_exposed() {
    for request in [Request::get("/"), Request::get("/other")] {
        let layer = layer(rule("r").on_path("/other")).expose_decision(false);
        assert_eq!(told(app().layer(layer), request).await.0, StatusCode::INTERNAL_SERVER_ERROR);
    }
    let settled = layer(rule("r").on_path("/other").settle_in_handler()).expose_decision(false);
    assert_eq!(told(app().layer(settled), Request::get("/")).await, (StatusCode::OK, "false ".to_owned()));
}

#[tokio::test]
async fn without_axum_it_is_the_same() {
    let handler = service_fn(|request: Request<()>| async move {
        let limits = Limits::of(request.extensions()).expect("they are there");
        assert!(limits.decision().is_none() && limits.outcomes().next().is_none());
        assert!(limits.settle("r", 1).is_err(), "no rule is settled");
        Ok::<_, Infallible>(Reply::default())
    });
    let app = App::around(&layer(rule("r").on_method(Method::POST)), handler);
    assert_eq!(app.get("/").await.status(), StatusCode::OK);
}

/// Whatever the layers are, the rules of the inner one come first.
#[tokio::test]
async fn the_innermost_layer_comes_first_whichever_is_settled() {
    let (plain, settled) = (|name| layer(rule(name)), |name| layer(rule(name).settle_in_handler()));
    let hidden = |name| settled(name).expose_decision(false);
    let skip = |name| layer(rule(name).on_path("/other"));
    for (inner, outer, expected) in [
        (plain("inner"), settled("outer"), "true inner,outer"),
        (settled("inner"), settled("outer"), "true inner,outer"),
        (hidden("inner"), settled("outer"), "true inner,outer"),
        (settled("inner"), hidden("outer"), "true inner,outer"),
        (plain("inner"), hidden("outer"), "true inner,outer"),
        (hidden("inner"), plain("outer"), "true inner,outer"),
        (hidden("inner"), hidden("outer"), "true inner,outer"),
        // What a layer exposes replaces what an outer layer exposed.
        (plain("inner"), plain("outer"), "true inner"),
        (settled("inner"), plain("outer"), "true inner"),
        // A layer that does not count the request hides nothing.
        (skip("inner"), plain("outer"), "true outer"),
        (skip("inner"), settled("outer"), "true outer"),
        (plain("inner"), skip("outer"), "true inner"),
        (layer(rule("inner").on_path("/other").settle_in_handler()), plain("outer"), "true outer"),
        (skip("inner"), skip("outer"), "false "),
    ] {
        assert_eq!(told(app().layer(inner).layer(outer), Request::get("/")).await.1, expected);
    }
}
