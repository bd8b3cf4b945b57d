//! `X-RateLimit-*` and `Retry-After`, to the second.

use std::time::Duration;

use http::{Method, Request, StatusCode};
use ratekeeper::{
    DAY, Decision, IetfDraft, Limiter, MINUTE, Outcome, Quota, RateLimitLayer, RequestHead, Retry, Rule, key,
    rejection::RejectionReason,
};
use tower::service_fn;

use crate::support::stores::Canned;
use crate::support::{App, Reply, ReplyExt, RequestExt, SECOND, get, limiter, millis, ok, request, secs};

fn global(name: &str, quota: Quota) -> Rule {
    Rule::new(name, quota).key(key::global())
}

#[tokio::test]
async fn every_limited_response_tells_limit_rest_and_reset() {
    // One each second; the clock stands at a quarter past.
    let app = App::new([global("r", Quota::per_minute(60))]);
    assert_eq!(app.get("/").await.trio(), Some((60, 59, SECOND + 2)));
    assert_eq!(app.get("/").await.trio(), Some((60, 58, SECOND + 3)));
    app.clock.advance(millis(750));
    assert_eq!(app.get("/").await.trio(), Some((60, 57, SECOND + 4)));
    app.clock.advance(secs(600));
    assert_eq!(app.get("/").await.trio(), Some((60, 59, SECOND + 602)));
}

#[tokio::test]
async fn a_response_that_takes_a_while_tells_the_same() {
    let names: [&[&str]; 2] = [&["a"], &["a", "b", "c"]];
    for names in names {
        let (limiter, _clock) = limiter(names.iter().map(|name| global(name, Quota::per_minute(60))));
        let layer = RateLimitLayer::new(limiter).ietf_headers(IetfDraft::Draft11);
        let bare = layer.clone().expose_decision(false);
        for (layer, remaining) in [(&layer, 59), (&bare, 58)] {
            let slow = service_fn(|request: Request<()>| async move {
                tokio::task::yield_now().await;
                Ok(ok(request))
            });
            let reply = App::around(layer, slow).get("/").await;
            assert_eq!(reply.trio(), Some((60, remaining, SECOND + 61 - u64::from(remaining))), "{names:?}");
            assert_eq!(reply.headers().get_all("ratelimit").iter().count(), names.len());
            assert_eq!(reply.extensions().get::<Decision>().is_some(), remaining == 59, "{names:?}");
        }
    }
}

#[tokio::test]
async fn a_reset_on_the_second_is_that_second() {
    // 20.25 s into the minute.
    let app = App::new([global("r", Quota::fixed_window(3, MINUTE))]);
    assert_eq!(app.get("/").await.trio(), Some((3, 2, SECOND + 40)));
    app.clock.advance(millis(39_749));
    assert_eq!(app.get("/").await.trio(), Some((3, 1, SECOND + 40)));
    app.clock.advance(millis(1));
    assert_eq!(app.get("/").await.trio(), Some((3, 2, SECOND + 100)));
}

#[tokio::test]
async fn a_denial_tells_when_to_come_again_in_whole_seconds_rounded_up() {
    let app = App::new([global("r", Quota::per_minute(2))]);
    assert_eq!(app.admitted(2, || get("/")).await, 2);
    for (advance, retry) in [
        (Duration::ZERO, "30"),
        (millis(1), "30"),
        (millis(999), "29"),
        (millis(1), "29"),
        (millis(27_999), "1"),
        (millis(999), "1"),
        (Duration::from_micros(999), "1"),
    ] {
        app.clock.advance(advance);
        let reply = app.get("/").await;
        assert_eq!(reply.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(reply.field("retry-after"), Some(retry), "{advance:?}");
        assert_eq!(reply.trio(), Some((2, 0, SECOND + 61)));
    }
    app.clock.advance(Duration::from_micros(1));
    let reply = app.get("/").await;
    assert_eq!((reply.status(), reply.field("retry-after")), (StatusCode::OK, None));
}

#[tokio::test]
async fn waiting_as_long_as_was_told_is_enough() {
    for quota in [
        Quota::per_second(3),
        Quota::token_bucket(7, secs(5)).burst(2),
        Quota::fixed_window(3, MINUTE),
        Quota::sliding_window(3, MINUTE),
        Quota::sliding_log(3, millis(2_500)),
    ] {
        let app = App::new([global("r", quota)]);
        for _ in 0..30 {
            let reply = app.get("/").await;
            if let Some(retry) = reply.field("retry-after") {
                app.clock.advance(secs(retry.parse().unwrap()));
                assert_eq!(app.get("/").await.status(), StatusCode::OK, "{quota}");
            }
            app.clock.advance(millis(37));
        }
    }
}

#[tokio::test]
async fn a_request_that_costs_more_than_there_can_ever_be_is_not_told_to_come_again() {
    let app = App::new([global("r", Quota::per_minute(5)).cost_by(|_| 6)]);
    let reply = app.get("/").await;
    assert_eq!(reply.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(reply.field("retry-after"), None);
    assert_eq!(reply.trio(), Some((5, 5, SECOND + 1)));
}

#[tokio::test]
async fn the_three_speak_for_the_tightest_rule() {
    let app = App::new([
        global("day", Quota::fixed_window(4, DAY)),
        global("minute", Quota::per_minute(60).burst(2)),
    ]);
    // The rule with less left.
    assert_eq!(app.get("/").await.trio(), Some((2, 1, SECOND + 2)));
    assert_eq!(app.get("/").await.trio(), Some((2, 0, SECOND + 3)));
    // The rule that denies, though the other one is not full either.
    assert_eq!(app.get("/").await.trio(), Some((2, 0, SECOND + 3)));
    app.clock.advance(secs(10));
    // Of two rules with the same left, the one that resets last: the day ends at a multiple of 86,400.
    assert_eq!(app.get("/").await.trio(), Some((4, 1, SECOND + 6_400)));
    assert_eq!(app.get("/").await.trio(), Some((4, 0, SECOND + 6_400)));
    // Both deny: the one with the longest wait.
    let reply = app.get("/").await;
    assert_eq!(reply.trio(), Some((4, 0, SECOND + 6_400)));
    assert_eq!(reply.field("retry-after"), Some("6390"));
}

#[tokio::test]
async fn what_remains_never_goes_below_zero_nor_above_the_limit() {
    let app = App::new([global("r", Quota::sliding_window(5, secs(10)))
        .cost_by(|head| head.uri().query().and_then(|cost| cost.parse().ok()).unwrap_or(1))]);
    for n in 0..200u32 {
        let reply = app.get(&format!("/?{}", n % 7)).await;
        let (limit, remaining, reset) = reply.trio().unwrap();
        assert!(limit == 5 && remaining <= 5 && reset > SECOND, "{limit} {remaining} {reset}");
        app.clock.advance(millis(u64::from(n * 17 % 900)));
    }
}

#[tokio::test]
async fn large_numbers_are_written_in_full() {
    let app = App::new([global("r", Quota::per_second(u32::MAX))]);
    let (limit, remaining, _) = app.get("/").await.trio().unwrap();
    assert_eq!((limit, remaining), (u32::MAX, u32::MAX - 1));
}

#[tokio::test]
async fn whatever_a_store_says_a_wait_is_whole_seconds_and_at_least_one() {
    let longest = Duration::from_micros(u64::MAX / 2 - 1);
    for (wait, retry) in [
        (Duration::ZERO, "1"),
        (Duration::from_micros(1), "1"),
        (secs(1), "1"),
        (Duration::from_micros(1_000_001), "2"),
        (longest, "9223372036855"),
    ] {
        let store = Canned(Outcome::denied(7, 0, wait, wait, Retry::After(wait)));
        let limiter =
            Limiter::builder().store(store).rule(global("r", Quota::per_minute(7))).build().unwrap();
        let layer = RateLimitLayer::new(limiter).ietf_headers(IetfDraft::Draft11);
        let reply = App::over(&layer, ok).get("/").await;
        assert_eq!(reply.field("retry-after"), Some(retry), "{wait:?}");
        let (limit, remaining, reset) = reply.trio().unwrap();
        assert!(limit == 7 && remaining == 0 && reset > SECOND, "{wait:?}");
        assert_eq!(crate::ietf::parse(&reply, "ratelimit").len(), 1, "{wait:?}");
    }
}

#[tokio::test]
async fn the_three_can_be_switched_off() {
    let app = App::with([global("r", Quota::per_minute(1))], |layer| layer.x_ratelimit_headers(false));
    let reply = app.get("/").await;
    assert!(reply.headers().is_empty());
    let reply = app.get("/").await;
    assert_eq!((reply.status(), reply.trio()), (StatusCode::TOO_MANY_REQUESTS, None));
    // When to retry is reported all the same.
    assert_eq!(reply.field("retry-after"), Some("60"));
}

#[tokio::test]
async fn the_inner_response_keeps_what_it_has() {
    fn handler(_: Request<()>) -> Reply {
        let mut reply = ok(Request::new(()));
        *reply.status_mut() = StatusCode::NOT_FOUND;
        reply.headers_mut().insert("cache-control", "max-age=60".parse().unwrap());
        reply.headers_mut().insert("x-own", "1".parse().unwrap());
        reply.extensions_mut().insert(7u8);
        reply
    }
    let (limiter, _) = limiter([global("r", Quota::per_minute(60))]);
    let reply = App::over(&RateLimitLayer::new(limiter), handler).get("/").await;
    assert_eq!(reply.status(), StatusCode::NOT_FOUND);
    assert_eq!(reply.field("cache-control"), Some("max-age=60"));
    assert_eq!(reply.field("x-own"), Some("1"));
    assert_eq!(reply.trio().unwrap().1, 59);
    assert_eq!(reply.extensions().get(), Some(&7u8));
}

/// As many fields as a map can hold.
fn full(_: Request<()>) -> Reply {
    let mut reply = ok(Request::new(()));
    let names = (0..).map(|number| http::HeaderName::try_from(format!("field-{number}")).expect("a name"));
    let value = http::HeaderValue::from_static("x");
    names.map(|name| reply.headers_mut().try_append(name, value.clone())).take_while(Result::is_ok).count();
    reply
}

#[tokio::test]
async fn a_response_that_can_have_no_more_fields_is_left_as_it_is() {
    let fields = full(Request::new(())).headers().len();
    let (limiter, _) = limiter([global("r", Quota::per_minute(1))]);
    let layer = RateLimitLayer::new(limiter).ietf_headers(IetfDraft::Draft11);
    let app =
        App::over(&layer.rejection(|_: &RequestHead<'_>, _: &RejectionReason<'_>| full(get("/"))), full);
    for _ in 0..2 {
        let reply = app.get("/").await;
        assert_eq!((reply.headers().len(), reply.trio()), (fields, None));
    }
}

#[tokio::test]
async fn the_decision_is_there_for_handlers_and_for_outer_layers() {
    fn handler(request: Request<()>) -> Reply {
        let decision: &Decision = request.extensions().get().expect("a decision");
        let remaining = decision.outcome("r").unwrap().remaining();
        let mut reply = ok(request);
        reply.headers_mut().insert("x-seen", remaining.into());
        reply
    }
    let (limiter, _) = limiter([global("r", Quota::per_minute(2))]);
    let app = App::over(&RateLimitLayer::new(limiter), handler);
    let reply = app.get("/").await;
    assert_eq!(reply.field("x-seen"), Some("1"));
    assert!(reply.decision().is_admitted());
    assert_eq!(reply.decision().outcome("r").unwrap().remaining(), 1);
    app.get("/").await;
    let reply = app.get("/").await;
    assert!(!reply.decision().is_admitted());
    assert_eq!(reply.decision().denied_by().next().unwrap().as_str(), "r");
}

#[tokio::test]
async fn the_decision_can_be_kept_to_oneself() {
    fn handler(request: Request<()>) -> Reply {
        assert!(request.extensions().get::<Decision>().is_none());
        ok(request)
    }
    let (limiter, _) = limiter([global("r", Quota::per_minute(1))]);
    let app = App::over(&RateLimitLayer::new(limiter).expose_decision(false), handler);
    for status in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
        let reply = app.get("/").await;
        assert_eq!(reply.status(), status);
        assert!(reply.extensions().get::<Decision>().is_none());
        assert!(reply.trio().is_some());
    }
}

fn preflight() -> Request<()> {
    request(Method::OPTIONS, "/")
        .header("origin", "https://example.com")
        .header("access-control-request-method", "POST")
}

#[tokio::test]
async fn preflights_are_not_charged() {
    let app = App::new([global("r", Quota::per_minute(2))]);
    assert_eq!(app.admitted(10, preflight).await, 10);
    let reply = app.send(preflight()).await;
    assert!(reply.headers().is_empty());
    // A request that only resembles a preflight is charged.
    assert_eq!(app.admitted(3, || request(Method::OPTIONS, "/").header("origin", "https://x")).await, 2);
    let get = || get("/").header("origin", "https://x").header("access-control-request-method", "GET");
    assert_eq!(app.admitted(3, get).await, 0);
}

#[tokio::test]
async fn what_no_browser_sends_is_no_preflight() {
    for (name, value) in [
        ("authorization", "Bearer t0ken"),
        ("cookie", "session=abc"),
        ("content-type", "text/plain"),
        ("content-length", "7"),
        ("content-length", ""),
        ("transfer-encoding", "chunked"),
    ] {
        let app = App::new([global("r", Quota::per_minute(2))]);
        assert_eq!(app.admitted(10, || preflight().header(name, value)).await, 2, "{name}: {value}");
    }
    for method in ["", " ", "GET /", "GET,POST", "\u{e9}"] {
        let app = App::new([global("r", Quota::per_minute(2))]);
        let request = || {
            let mut request = preflight();
            let value = http::HeaderValue::from_bytes(method.as_bytes()).unwrap();
            request.headers_mut().insert("access-control-request-method", value);
            request
        };
        assert_eq!(app.admitted(10, request).await, 2, "{method}");
    }
    let app = App::new([global("r", Quota::per_minute(2))]);
    assert_eq!(app.admitted(10, || preflight().header("content-length", "0")).await, 10);
    assert_eq!(app.admitted(10, || preflight().header("access-control-request-headers", "x")).await, 10);
}

#[tokio::test]
async fn preflights_can_be_charged() {
    let app = App::with([global("r", Quota::per_minute(2))], |layer| layer.charge_preflights(true));
    assert_eq!(app.admitted(10, preflight).await, 2);
}
