//! Handlers that charge by themselves: keys from request heads, and denials as responses.

use axum::body::to_bytes;
use axum::response::IntoResponse;
use http::{Request, StatusCode};
use ratekeeper::rejection::Denied;
use ratekeeper::{Decision, Key, Limiter, LimiterError, Quota, RateLimitLayer, RequestHead, Rule, key};

use crate::support::{App, ReplyExt, get, limiter, ok};

fn mails() -> Rule {
    Rule::new("mails", Quota::per_minute(1)).key(key::path_param("user")).on_path("/mails/{user}")
}

/// The same status, fields and body as the layer sends.
#[tokio::test]
async fn a_denied_decision_is_the_response_that_the_layer_sends() {
    let (limiter, _) = limiter([mails()]);
    let app = App::over(&RateLimitLayer::new(limiter.clone()), ok);
    assert_eq!(app.get("/mails/alice").await.status(), StatusCode::OK);
    let sent = app.get("/mails/alice").await;
    let decision = limiter.charge("mails", "alice").await.unwrap();
    let response = Denied::check(decision).unwrap_err().into_response();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    for field in ["retry-after", "cache-control", "content-type", "x-ratelimit-limit", "x-ratelimit-reset"] {
        assert_eq!(response.headers().get(field), sent.headers().get(field), "{field}");
        assert!(sent.field(field).is_some(), "{field}");
    }
    assert!(response.extensions().get::<Decision>().is_some_and(|decision| !decision.is_admitted()));
    let body = to_bytes(response.into_body(), 1_000).await.unwrap();
    assert!(String::from_utf8_lossy(&body).contains(r#""rule":"mails""#), "{body:?}");
    let admitted = limiter.charge("mails", "bob").await.unwrap();
    assert!(Denied::check(admitted).is_ok());
}

/// The key is the one that the layer has counted, whatever the extractor makes of the request.
#[tokio::test]
async fn a_budget_is_reset_by_the_head_of_a_request() {
    let (limiter, _) = limiter([mails(), Rule::new("jobs", Quota::per_minute(5)).manual()]);
    let app = App::over(&RateLimitLayer::new(limiter.clone()), ok);
    assert_eq!(app.get("/mails/alice").await.status(), StatusCode::OK);
    assert_eq!(app.get("/mails/alice").await.status(), StatusCode::TOO_MANY_REQUESTS);
    let request: Request<()> = get("/mails/alice");
    let head = RequestHead::from(&request);
    let key = limiter.key_of("mails", &head).await.unwrap().expect("the path has the user");
    assert_eq!(key, Key::from("alice"));
    limiter.reset("mails", key).await.unwrap();
    assert_eq!(app.get("/mails/alice").await.status(), StatusCode::OK);
    assert_eq!(limiter.key_of("jobs", &head).await.unwrap(), None, "there is no connect info");
    let unknown = limiter.key_of("mail", &head).await;
    assert!(matches!(unknown, Err(LimiterError::UnknownRule(rule)) if rule == "mail"));
}

/// Two arms of the same type.
#[tokio::test]
async fn the_store_is_chosen_at_run_time() {
    for is_manual in [false, true] {
        let builder = Limiter::builder().rule(Rule::new("jobs", Quota::per_hour(1)).manual());
        let limiter: Limiter = match is_manual {
            true => builder.store(crate::support::memory(&crate::support::clock())),
            false => builder.store(std::sync::Arc::new(ratekeeper::MemoryStore::new())),
        }
        .build()
        .unwrap();
        assert!(limiter.charge("jobs", "a").await.unwrap().is_admitted());
        assert!(!limiter.charge("jobs", "a").await.unwrap().is_admitted());
    }
}
