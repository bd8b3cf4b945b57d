//! The responses to denied requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use http_body_util::Full;
use ratekeeper::{
    Quota, RateLimitLayer, RequestHead, Rule, key, rejection::BoxRejection, rejection::RejectionReason,
};
use serde_json::json;

use crate::support::{App, Reply, ReplyExt, body, get, json, request, secs};

fn rules() -> [Rule; 2] {
    [
        Rule::new("per-minute", Quota::per_minute(2)).key(key::global()),
        Rule::new("per-hour", Quota::per_hour(2)).key(key::global()),
    ]
}

/// The reply to a request that both rules deny.
async fn denied(app: &App) -> Reply {
    assert_eq!(app.admitted(2, || get("/")).await, 2);
    let reply = app.get("/denied").await;
    assert_eq!(app.calls(), 2);
    reply
}

#[tokio::test]
async fn a_denial_is_429_and_json_unless_it_is_said() {
    let reply = denied(&App::new(rules())).await;
    assert_eq!(reply.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(reply.field("content-type"), Some("application/json"));
    assert_eq!(reply.field("retry-after"), Some("1800"));
    assert_eq!(
        json(reply).await,
        json!({
            "error": "rate_limited",
            "message": "Too many requests.",
            "rule": "per-hour",
            "retry_after_seconds": 1_800,
        })
    );
}

#[tokio::test]
async fn json_does_not_tell_when_to_come_again_if_it_is_in_vain() {
    let app = App::new([Rule::new("r", Quota::per_minute(2)).key(key::global()).cost_by(|_| 3)]);
    let json = json(app.get("/").await).await;
    assert_eq!(json, json!({"error": "rate_limited", "message": "Too many requests.", "rule": "r"}));
}

#[tokio::test]
async fn a_denial_may_be_a_problem_document() {
    let reply = denied(&App::with(rules(), RateLimitLayer::problem_details)).await;
    assert_eq!(reply.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(reply.field("content-type"), Some("application/problem+json"));
    let problem = json(reply).await;
    assert_eq!(problem["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded");
    assert_eq!(problem["title"], "Quota exceeded");
    // RFC 9457, section 3.1.2: the same as the response's.
    assert_eq!(problem["status"], 429);
    assert_eq!(problem["detail"], "Try again in 1800 s.");
    assert_eq!(problem["retry_after_seconds"], 1_800);
    assert_eq!(problem["violated-policies"], json!(["per-minute", "per-hour"]));
}

#[tokio::test]
async fn a_problem_names_only_the_rules_that_deny() {
    let app = App::with(rules(), RateLimitLayer::problem_details);
    denied(&app).await;
    app.clock.advance(secs(60));
    let problem = json(app.get("/").await).await;
    assert_eq!(problem["violated-policies"], json!(["per-hour"]));
}

#[tokio::test]
async fn names_of_rules_are_json_whatever_they_are() {
    let name: String = (b'!'..=b'~').map(char::from).filter(|c| !"\"\\".contains(*c)).collect();
    for name in [&name[..60], &name[60..]] {
        let rule = || Rule::new(name, Quota::per_minute(1)).key(key::global()).cost_by(|_| 2);
        assert_eq!(json(App::new([rule()]).get("/").await).await["rule"], name);
        let problem = App::with([rule()], RateLimitLayer::problem_details);
        assert_eq!(json(problem.get("/").await).await["violated-policies"][0], name);
    }
}

#[tokio::test]
async fn a_rejection_of_ones_own_sees_the_head_and_the_decision() {
    let rejection = |head: &RequestHead<'_>, refusal: &RejectionReason<'_>| -> Reply {
        let RejectionReason::Limited(decision) = refusal else { panic!("nothing failed") };
        assert_eq!(refusal.status(), StatusCode::TOO_MANY_REQUESTS);
        let (rule, outcome) = decision.tightest().unwrap();
        let text = format!(
            "{} {}: {rule}, {} of {}, {:?}",
            head.method(),
            head.path(),
            outcome.remaining(),
            outcome.limit(),
            refusal.retry_after_seconds()
        );
        Response::builder().status(StatusCode::FORBIDDEN).header("x-own", "1").body(Full::from(text)).unwrap()
    };
    let app = App::with(rules(), |layer| layer.rejection(rejection));
    denied(&app).await;
    let reply = app.send(request(Method::POST, "/x?y")).await;
    assert_eq!(reply.status(), StatusCode::FORBIDDEN);
    assert_eq!(reply.field("x-own"), Some("1"));
    // The layer adds the fields that every denial has.
    assert_eq!(reply.field("retry-after"), Some("1800"));
    assert_eq!(reply.field("cache-control"), Some("no-store"));
    assert!(reply.trio().is_some() && !reply.decision().is_admitted());
    assert_eq!(body(reply).await, "POST /x: per-hour, 0 of 2, Some(1800)");
}

#[tokio::test]
async fn no_cache_keeps_a_denial() {
    let rejection = |_: &RequestHead<'_>, _: &RejectionReason<'_>| -> Reply {
        Response::builder()
            .status(StatusCode::TOO_MANY_REQUESTS)
            .header("cache-control", "public")
            .header("cache-control", "max-age=600")
            .header("expires", "Thu, 01 Jan 2099 00:00:00 GMT")
            .header("etag", "\"x\"")
            .header("last-modified", "Thu, 01 Jan 2009 00:00:00 GMT")
            .header("age", "7")
            .header("cdn-cache-control", "max-age=600")
            .header("example-cdn-cache-control", "max-age=600")
            .header("surrogate-control", "max-age=600")
            .body(Full::default())
            .unwrap()
    };
    let reply = denied(&App::with(rules(), |layer| layer.rejection(rejection))).await;
    assert_eq!(reply.lines("cache-control"), ["no-store"]);
    let fields = ["expires", "etag", "last-modified", "age", "cdn-cache-control", "surrogate-control"];
    for field in fields.into_iter().chain(["example-cdn-cache-control"]) {
        assert_eq!(reply.field(field), None);
    }
    let reply = denied(&App::new(rules())).await;
    assert_eq!(reply.field("cache-control"), Some("no-store"));
}

#[tokio::test]
async fn a_rejections_own_retry_after_stands() {
    let rejection = |_: &RequestHead<'_>, _: &RejectionReason<'_>| -> Reply {
        Response::builder().status(429).header("retry-after", "7200").body(Full::default()).unwrap()
    };
    let reply = denied(&App::with(rules(), |layer| layer.rejection(rejection))).await;
    assert_eq!(reply.lines("retry-after"), ["7200"]);
}

#[tokio::test]
async fn a_rejection_may_have_a_type_that_can_be_written_down() {
    struct State {
        rejection: BoxRejection<Full<Bytes>>,
    }
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let state = State {
        rejection: BoxRejection::new(move |_: &RequestHead<'_>, refusal: &RejectionReason<'_>| {
            counted.fetch_add(1, Ordering::SeqCst);
            Response::builder().status(refusal.status()).body(Full::from("boxed")).unwrap()
        }),
    };
    let reply = denied(&App::with(rules(), |layer| layer.rejection(state.rejection.clone()))).await;
    assert_eq!(body(reply).await, "boxed");
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_outer_layer_can_add_to_a_denial() {
    // A browser reports a 429 without CORS fields as a network error, so CORS goes outside.
    use tower::{Layer, ServiceExt, service_fn, util::MapResponseLayer};

    let (limiter, _) = crate::support::limiter(rules());
    let inner =
        service_fn(|_: http::Request<()>| async { Ok::<_, std::convert::Infallible>(Reply::default()) });
    let limited = RateLimitLayer::new(limiter).layer(inner);
    let cors = MapResponseLayer::new(|mut reply: Reply| {
        reply.headers_mut().insert("access-control-allow-origin", "*".parse().unwrap());
        reply
    });
    let service = cors.layer(limited);
    for status in [200, 200, 429] {
        let reply = service.clone().oneshot(get("/")).await.unwrap();
        assert_eq!(reply.status().as_u16(), status);
        assert_eq!(reply.field("access-control-allow-origin"), Some("*"));
    }
}
