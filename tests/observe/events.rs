//! Events about denials and failures.

use std::time::{Duration, Instant, SystemTime};

use http::{HeaderValue, Request, StatusCode};
use ratekeeper::store::RuleName;
use ratekeeper::{FailurePolicy, Key, Limiter, MissingKey, Mode, Quota, Rule, Share, key};
use ratekeeper_redis::RedisStore;

use crate::support::{START, Told, get, limiter, send};

fn by(user: &'static str) -> Request<()> {
    let mut request = get("/");
    request.headers_mut().insert("x-user", HeaderValue::from_static(user));
    request
}

#[tokio::test]
async fn a_denial_is_one_event_and_an_admission_none() {
    let told = Told::start();
    let (limiter, _clock) = limiter([Rule::new("api", Quota::per_minute(1))]);
    assert_eq!(send(&limiter, get("/")).await, StatusCode::OK);
    assert!(told.lines().is_empty(), "{:?}", told.lines());
    assert_eq!(send(&limiter, get("/")).await, StatusCode::TOO_MANY_REQUESTS);
    let [line] = &*told.lines() else { panic!("{:?}", told.lines()) };
    assert_eq!(
        line,
        "INFO ratekeeper: denied rule=\"api\" mode=\"enforce\" limit=1 remaining=0 retry_after_ms=60000 suppressed=0"
    );
}

#[tokio::test]
async fn a_flood_leaves_a_few_events_a_second_and_tells_how_many_were_left_out() {
    let told = Told::start();
    let (limiter, clock) = limiter([Rule::new("flooded", Quota::per_hour(1))]);
    for _ in 0..1_001 {
        send(&limiter, get("/")).await;
    }
    assert_eq!(told.with("denied").len(), 10);
    clock.advance(Duration::from_secs(1));
    send(&limiter, get("/")).await;
    assert_eq!(told.with("suppressed=990").len(), 1, "{:?}", told.lines());
}

#[tokio::test]
async fn of_several_rules_the_one_to_wait_for_longest_is_told() {
    let told = Told::start();
    let (limiter, _clock) =
        limiter([Rule::new("minute", Quota::per_minute(1)), Rule::new("hour", Quota::per_hour(1))]);
    for _ in 0..2 {
        send(&limiter, get("/")).await;
    }
    let [line] = &*told.lines() else { panic!("{:?}", told.lines()) };
    assert!(line.contains("rule=\"hour\"") && line.contains("retry_after_ms=3600000"), "{line}");
}

#[tokio::test]
async fn what_a_rule_in_shadow_would_deny_is_told_as_such() {
    let told = Told::start();
    let (limiter, _clock) = limiter([Rule::new("new", Quota::per_hour(1)).mode(Mode::Shadow)]);
    for _ in 0..2 {
        assert_eq!(send(&limiter, get("/")).await, StatusCode::OK);
    }
    let [line] = &*told.lines() else { panic!("{:?}", told.lines()) };
    assert!(line.contains("denied rule=\"new\" mode=\"shadow\""), "{line}");
}

#[tokio::test]
async fn no_key_is_in_an_event_be_it_a_secret_or_not() {
    let told = Told::start();
    let rule = |name: &str| Rule::new(name, Quota::per_hour(1)).on_missing_key(MissingKey::Deny);
    let (limiter, _clock) =
        limiter([rule("token").key(key::bearer()), rule("user").key(key::header("x-user"))]);
    let request = || {
        let mut request = get("/");
        let headers = request.headers_mut();
        headers.insert("authorization", HeaderValue::from_static("Bearer hunter2"));
        headers.insert("x-user", HeaderValue::from_static("alice"));
        request
    };
    for _ in 0..2 {
        send(&limiter, request()).await;
    }
    send(&limiter, get("/")).await;
    let lines = told.lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[1].contains("denied, as the key is missing"), "{lines:?}");
    for line in lines {
        for caller in ["hunter2", "alice", "192.0.2.7"] {
            assert!(!line.contains(caller), "{line}");
        }
    }
}

/// A request without a key is not necessarily denied, and such requests must not use up all events of the
/// rule.
#[tokio::test]
async fn requests_without_a_key_leave_denials_their_events() {
    let told = Told::start();
    let (half, named) = (Share::one_of(2), |name: &str| RuleName::new(name).expect("a name"));
    // Enforced for the caller, and in shadow for requests without a key.
    let mut names = (0..).map(|number| format!("api-{number}"));
    let is_such = |name: &String| {
        half.includes(named(name), &Key::from("alice")) && !half.includes(named(name), &Key::GLOBAL)
    };
    let name = names.find(is_such).expect("one of many");
    let rule = Rule::new(&name, Quota::per_hour(1)).key(key::header("x-user"));
    let (limiter, clock) = limiter([rule.on_missing_key(MissingKey::Deny).mode(Mode::EnforceFor(half))]);
    // The same time as the clock of the process.
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("a time after 1970");
    clock.advance(now - Duration::from_micros(START.as_micros()));
    for _ in 0..30 {
        assert_eq!(send(&limiter, get("/")).await, StatusCode::OK);
    }
    for expected in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
        assert_eq!(send(&limiter, by("alice")).await, expected);
    }
    let [line] = &*told.with("mode=\"enforce\"") else { panic!("{:?}", told.lines()) };
    assert!(line.contains("denied rule=") && line.ends_with("suppressed=0"), "{line}");
}

#[tokio::test]
async fn another_clock_for_those_without_a_key_does_not_let_more_through() {
    let told = Told::start();
    let rule = Rule::new("api", Quota::per_hour(1)).key(key::header("x-user"));
    let (limiter, _clock) = limiter([rule.on_missing_key(MissingKey::Deny)]);
    let start = Instant::now();
    for _ in 0..101 {
        send(&limiter, by("alice")).await;
        send(&limiter, get("/")).await;
    }
    let seconds = start.elapsed().as_secs() as usize + 2;
    assert_eq!(told.with("denied rule=").len(), 10);
    let missing = told.with("denied, as the key is missing").len();
    assert!((10..=10 * seconds).contains(&missing), "{missing}");
}

#[tokio::test]
async fn a_store_that_fails_is_told_with_what_comes_of_it() {
    let told = Told::start();
    // No server listens there.
    let store = RedisStore::new("redis://127.0.0.1:1").expect("an address");
    let rule = Rule::new("shut", Quota::per_hour(5)).on_store_failure(FailurePolicy::Deny);
    let limiter = Limiter::builder().store(store).rule(rule).build().expect("good rules");
    assert_eq!(send(&limiter, get("/")).await, StatusCode::SERVICE_UNAVAILABLE);
    let [line] = &*told.with("the store failed") else { panic!("{:?}", told.lines()) };
    assert!(line.starts_with("WARN ratekeeper:"), "{line}");
    assert!(line.contains("rule=\"shut\" outcome=\"denied_by_failure\""), "{line}");
}
