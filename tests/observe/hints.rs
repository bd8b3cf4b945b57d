//! Signs of misuse: each is found, once, and only where it exists.

use std::time::Duration;

use http::{HeaderValue, Request, StatusCode};
use ratekeeper::key::{self, TrustedProxies};
use ratekeeper::{Limiter, MemoryStore, MissingKey, Quota, RateLimitLayer, Rule, RuleSet, hint::HintCode};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{Recorded, Told, anonymous, answer, get, limiter, send};

fn codes(limiter: &Limiter) -> Vec<HintCode> {
    limiter.hints().iter().map(ratekeeper::hint::Hint::code).collect()
}

fn forwarded() -> Request<()> {
    let mut request = get("/");
    request.headers_mut().insert("x-forwarded-for", HeaderValue::from_static("198.51.100.1"));
    request
}

#[tokio::test]
async fn forwarding_fields_that_nobody_trusts() {
    let (recorded, told) = (Recorded::start(), Told::start());
    let (limiter, clock) = limiter([Rule::new("api", Quota::per_hour(100))]);
    for _ in 0..3 {
        send(&limiter, forwarded()).await;
        clock.advance(Duration::from_secs(1));
    }
    assert_eq!(codes(&limiter), [HintCode::NoTrustedProxy]);
    assert_eq!(recorded.value("ratekeeper_hints_total{code=\"RK001\"}"), 1.0);
    let [line] = &*told.with("RK001") else { panic!("{:?}", told.lines()) };
    assert!(line.starts_with("WARN ratekeeper:") && line.contains("index.html#rk001"), "{line}");
    assert!(!line.contains("198.51.100.1"), "{line}");
}

#[tokio::test]
async fn forwarding_fields_of_a_proxy_that_is_trusted_and_none_at_all() {
    let proxies = TrustedProxies::networks(["192.0.2.0/24"]).expect("a network");
    let (trusting, _clock) = limiter([Rule::new("api", Quota::per_hour(100)).key(key::client_ip(proxies))]);
    send(&trusting, forwarded()).await;
    let (direct, _clock) = limiter([Rule::new("api", Quota::per_hour(100))]);
    send(&direct, get("/")).await;
    assert!(trusting.hints().is_empty() && direct.hints().is_empty());
}

#[tokio::test]
async fn a_denied_request_shows_a_proxy_as_well() {
    let (limiter, clock) = limiter([Rule::new("api", Quota::per_hour(1))]);
    send(&limiter, get("/")).await;
    send(&limiter, get("/")).await;
    clock.advance(Duration::from_secs(2));
    send(&limiter, forwarded()).await;
    assert_eq!(codes(&limiter), [HintCode::NoTrustedProxy]);
}

#[tokio::test]
async fn one_request_that_two_layers_count() {
    let told = Told::start();
    let (limiter, clock) = limiter([Rule::new("api", Quota::per_hour(100))]);
    let layer = RateLimitLayer::new(limiter.clone());
    for _ in 0..3 {
        let nested = layer.layer(layer.layer(service_fn(answer)));
        nested.oneshot(get("/")).await.expect("an answer");
        clock.advance(Duration::from_secs(1));
    }
    assert_eq!(codes(&limiter), [HintCode::CountedTwice]);
    assert_eq!(told.with("RK002").len(), 1, "{:?}", told.lines());
}

#[tokio::test]
async fn layers_of_two_limiters_and_one_request_after_the_other() {
    let (outer, clock) = limiter([Rule::new("api", Quota::per_hour(100))]);
    let (inner, _clock) = limiter([Rule::new("api", Quota::per_hour(100))]);
    let layers = (RateLimitLayer::new(outer.clone()), RateLimitLayer::new(inner.clone()));
    for _ in 0..4 {
        let nested = layers.0.layer(layers.1.layer(service_fn(answer)));
        nested.oneshot(get("/")).await.expect("an answer");
        clock.advance(Duration::from_millis(600));
    }
    assert!(outer.hints().is_empty() && inner.hints().is_empty());
}

#[tokio::test]
async fn a_rule_that_matches_nothing() {
    let told = Told::start();
    let rules = [
        Rule::new("api", Quota::per_second(100)).on_path("/api"),
        Rule::new("typo", Quota::per_second(100)).on_path("/aip"),
    ];
    let (limiter, clock) = limiter(rules);
    send(&limiter, get("/api")).await;
    clock.advance(Duration::from_secs(3_599));
    send(&limiter, get("/api")).await;
    assert!(limiter.hints().is_empty(), "it is too early to tell");
    for _ in 0..3 {
        clock.advance(Duration::from_secs(2));
        send(&limiter, get("/api")).await;
    }
    assert_eq!(codes(&limiter), [HintCode::NeverMatched]);
    let [line] = &*told.with("RK003") else { panic!("{:?}", told.lines()) };
    assert!(line.contains("the rule `typo` has matched nothing"), "{line}");
}

#[tokio::test]
async fn requests_that_no_rule_matches_find_a_rule_that_matches_nothing() {
    let told = Told::start();
    let rules = ["/api", "/aip"].map(|path| Rule::new(path, Quota::per_second(100)).on_path(path));
    // The limiter's clock stands still years ago, when these rules came into force. Requests that are not
    // counted use the system's clock.
    let (limiter, _clock) = limiter(rules);
    send(&limiter, get("/api")).await;
    for _ in 0..1_024 {
        send(&limiter, get("/elsewhere")).await;
    }
    assert_eq!(told.with("RK003").len(), 1, "{:?}", told.lines());
}

#[tokio::test]
async fn rules_that_all_match_something() {
    let rules = ["/a", "/b"].map(|path| Rule::new(path, Quota::per_second(100)).on_path(path));
    let by_hand = Rule::new("by-hand", Quota::per_second(100)).manual();
    let (limiter, clock) = limiter(rules.into_iter().chain([by_hand]));
    for path in ["/a", "/b"] {
        send(&limiter, get(path)).await;
    }
    limiter.charge("by-hand", "job").await.expect("it works");
    clock.advance(Duration::from_secs(7_200));
    send(&limiter, get("/a")).await;
    assert!(limiter.hints().is_empty(), "{:?}", limiter.hints());
}

#[tokio::test]
async fn a_rule_that_only_denies_has_matched() {
    let rules = || [Rule::new("api", Quota::token_bucket(1, ratekeeper::DAY))];
    let (limiter, clock) = limiter(rules());
    send(&limiter, get("/")).await;
    limiter.swap(RuleSet::new(rules()).expect("good rules"));
    for _ in 0..3 {
        assert_eq!(send(&limiter, get("/")).await, StatusCode::TOO_MANY_REQUESTS);
        clock.advance(Duration::from_secs(3_600));
    }
    assert!(limiter.hints().is_empty(), "{:?}", limiter.hints());
}

#[tokio::test]
async fn a_rule_that_is_charged_by_hand_need_not_be() {
    let rules = [Rule::new("api", Quota::per_second(100)), Rule::new("jobs", Quota::per_second(1)).manual()];
    let (limiter, clock) = limiter(rules);
    for _ in 0..3 {
        send(&limiter, get("/")).await;
        clock.advance(Duration::from_secs(3_600));
    }
    assert!(limiter.hints().is_empty(), "{:?}", limiter.hints());
}

#[tokio::test]
async fn the_hour_is_one_in_which_the_rules_are_in_force() {
    let rules = ["/a", "/b"].map(|path| Rule::new(path, Quota::per_second(100)).on_path(path));
    let (limiter, clock) = limiter(rules);
    send(&limiter, get("/a")).await;
    let incident = RuleSet::new([Rule::new("all", Quota::per_second(1))]).expect("good rules");
    let before = limiter.swap(incident);
    send(&limiter, get("/a")).await;
    clock.advance(Duration::from_secs(7_200));
    limiter.swap(before);
    send(&limiter, get("/a")).await;
    send(&limiter, get("/a")).await;
    assert!(limiter.hints().is_empty(), "{:?}", limiter.hints());
    // The same rules under another version have not been in force long enough either.
    clock.advance(Duration::from_secs(3_599));
    limiter.swap(limiter.rule_set().with_version("2"));
    clock.advance(Duration::from_secs(2));
    send(&limiter, get("/a")).await;
    send(&limiter, get("/a")).await;
    assert!(limiter.hints().is_empty(), "{:?}", limiter.hints());
    for _ in 0..2 {
        clock.advance(Duration::from_secs(3_600));
        send(&limiter, get("/a")).await;
    }
    assert_eq!(codes(&limiter), [HintCode::NeverMatched]);
}

#[tokio::test]
async fn a_peer_that_is_not_known() {
    for missing in [MissingKey::Shared, MissingKey::Skip, MissingKey::Deny] {
        let (limiter, _clock) = limiter([Rule::new("api", Quota::per_hour(100)).on_missing_key(missing)]);
        send(&limiter, anonymous("/")).await;
        send(&limiter, anonymous("/")).await;
        assert_eq!(codes(&limiter), [HintCode::NoPeer], "{missing:?}");
    }
    let told = Told::start();
    let (limiter, clock) = limiter([
        Rule::new("api", Quota::per_hour(100)),
        Rule::new("all", Quota::per_hour(100)).key(key::global()),
    ]);
    for _ in 0..3 {
        send(&limiter, anonymous("/")).await;
        // With the first request, and only once.
        let lines = told.with("RK004");
        let [line] = &*lines else { panic!("{:?}", told.lines()) };
        assert!(line.starts_with("WARN") && line.contains("into_make_service_with_connect_info"), "{line}");
        clock.advance(Duration::from_secs(1));
    }
}

#[tokio::test]
async fn a_peer_that_is_known_and_a_rule_that_does_not_want_it() {
    let (limiter, _clock) = limiter([Rule::new("api", Quota::per_hour(100))]);
    send(&limiter, get("/")).await;
    let (other, _clock) = self::limiter([Rule::new("api", Quota::per_hour(100)).key(key::bearer())]);
    send(&other, anonymous("/")).await;
    assert!(limiter.hints().is_empty() && other.hints().is_empty());
}

#[test]
fn a_store_on_which_two_limiters_mean_different_things_by_one_name() {
    let store = MemoryStore::new();
    let build = |quota| {
        Limiter::builder().store(store.clone()).rule(Rule::new("api", quota)).build().expect("good rules")
    };
    let first = build(Quota::per_minute(10));
    let second = build(Quota::per_minute(20));
    assert!(first.hints().is_empty());
    assert_eq!(codes(&second), [HintCode::SharedStore]);
    // A swap can cause it as well.
    let third = build(Quota::per_minute(10));
    drop(second);
    let other = RuleSet::new([Rule::new("api", Quota::per_minute(30))]).expect("good rules");
    first.swap(other);
    assert_eq!(codes(&first), [HintCode::SharedStore]);
    drop(third);
}

#[test]
fn stores_that_are_shared_on_purpose_or_not_at_all() {
    let store = MemoryStore::new();
    let build = |store: &MemoryStore, name: &str, quota| {
        Limiter::builder().store(store.clone()).rule(Rule::new(name, quota)).build().expect("good rules")
    };
    let limiters = [
        build(&store, "api", Quota::per_minute(10)),
        // One budget for both.
        build(&store, "api", Quota::per_minute(10)),
        build(&store, "other", Quota::per_minute(20)),
        build(&MemoryStore::new(), "api", Quota::per_minute(20)),
    ];
    // A limiter that is gone clashes with none.
    drop(build(&store, "gone", Quota::per_minute(1)));
    let after = build(&store, "gone", Quota::per_minute(2));
    assert!(limiters.iter().chain([&after]).all(|limiter| limiter.hints().is_empty()));
}
