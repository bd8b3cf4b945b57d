//! Why a rule counts a request, or does not; this agrees with the decision.

use http::{Method, Request, StatusCode};
use ratekeeper::{
    Limiter, MissingKey, Mode, Quota, RateLimitLayer, RequestHead, Rule, RuleSet, Share, Tier,
    explain::Counted, explain::Why, key,
};

use crate::support::{App, RequestExt, get, ok};

fn rule(name: &str) -> Rule {
    Rule::new(name, Quota::per_minute(100)).key(key::global())
}

async fn explain(rules: impl IntoIterator<Item = Rule>, request: &Request<()>) -> Vec<Why> {
    let rules = RuleSet::new(rules).unwrap();
    rules.explain(&RequestHead::from(request)).await.into_iter().map(|explained| explained.why).collect()
}

async fn one(rule: Rule, request: &Request<()>) -> Why {
    explain([rule], request).await.remove(0)
}

async fn mismatches(rule: Rule, request: &Request<()>) -> Vec<String> {
    match one(rule, request).await {
        Why::Unmatched(mismatches) => mismatches.iter().map(ToString::to_string).collect(),
        other => panic!("{other:?}"),
    }
}

async fn counted(rule: Rule, request: &Request<()>) -> Counted {
    match one(rule, request).await {
        Why::Counts(counted) => *counted,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn all_that_does_not_fit_is_told() {
    let request = get("/login").header("host", "example.com:80");
    for (rule, expected) in [
        (rule("r").on_path("/other"), &["the path `/login` is not `/other`"][..]),
        (rule("r").on_path("/a").on_path("/b/{c}"), &["the path `/login` is not `/a` or `/b/{c}`"]),
        (rule("r").on(Method::POST, "/login").on(Method::PUT, "/x"), &["the method `GET` is not `POST`"]),
        (rule("r").on_method(Method::POST), &["the method `GET` is not `POST`"]),
        (rule("r").on_host("*.example.com"), &["the host `example.com` is not `*.example.com`"]),
        (
            rule("r").on_host("a.example").on(Method::POST, "/x"),
            &["the host `example.com` is not `a.example`", "the path `/login` is not `/x`"],
        ),
        (
            rule("r").on_host("a.example").on(Method::POST, "/login"),
            &["the host `example.com` is not `a.example`", "the method `GET` is not `POST`"],
        ),
        (rule("r").when(|_| false), &["a predicate is not true of it"]),
        (rule("r").except("/login").when(|_| false), &["the path `/login` is an exception"]),
        (rule("r").on_path("/login").except("/{page}"), &["the path `/login` is an exception, by `/{page}`"]),
        (rule("r").manual(), &["it is charged by hand and matches no request"]),
    ] {
        assert_eq!(mismatches(rule, &request).await, expected);
    }
    let without_host = mismatches(rule("r").on_host("a.example"), &get("/")).await;
    assert_eq!(without_host, ["no host is named, which would have to be `a.example`"]);
    let many = (0..7).fold(rule("r"), |rule, number| rule.on_path(format!("/{number}")));
    assert_eq!(
        mismatches(many, &get("/")).await,
        ["the path `/` is not `/0` or `/1` or `/2` or `/3` or `/4` or 2 more"]
    );
}

#[tokio::test]
async fn key_tier_and_cost_are_those_that_are_charged() {
    let request = get("/users/7").header("x-api-key", "hunter2").peer("192.0.2.1");
    let of = counted(rule("r").key(key::header("x-api-key").secret()).cost(3), &request).await;
    assert_eq!((of.key.to_string().as_str(), of.cost), ("secret:f52fbd32b2b3b86ff88ef6c490628285", 3));
    let of = counted(rule("r").on_path("/users/{id}").key(key::path_param("id")), &request).await;
    assert_eq!(of.key.to_string(), "7");
    let pro = Quota::per_minute(1_000);
    let tiered = || rule("r").tier("pro", pro).tier("free", Tier::Unlimited);
    let of = counted(tiered().tier_by_async(|_| async { "pro" }), &request).await;
    assert_eq!((of.tier.as_deref(), of.quota, of.is_enforced), (Some("pro"), pro, true));
    let of = counted(tiered().tier_by(|_| "unknown").mode(Mode::Shadow), &request).await;
    assert_eq!((of.tier, of.quota, of.is_enforced), (None, Quota::per_minute(100), false));
    let next = Quota::per_minute(50);
    assert_eq!(counted(rule("r").candidate(next), &request).await.candidate, Some(next));
    assert_eq!(counted(rule("r"), &request).await.candidate, None);
    let unlimited = one(tiered().tier_by(|_| "free"), &request).await;
    assert_eq!(unlimited, Why::Unlimited { tier: Some("free".to_owned()) });
}

#[tokio::test]
async fn a_key_that_is_not_there_is_told() {
    let rule = || rule("r").key(key::header("x-api-key"));
    let of = counted(rule(), &get("/")).await;
    assert_eq!((of.key, of.is_shared), (ratekeeper::Key::GLOBAL, true));
    for missing in [MissingKey::Skip, MissingKey::Deny] {
        assert_eq!(one(rule().on_missing_key(missing), &get("/")).await, Why::NoKey(missing));
    }
    // In shadow no request is denied.
    let shadow = rule().on_missing_key(MissingKey::Deny).shadow();
    assert_eq!(one(shadow, &get("/")).await, Why::NoKey(MissingKey::Skip));
    let all = rule().on_missing_key(MissingKey::Deny).mode(Mode::EnforceFor(Share::WHOLE));
    assert_eq!(one(all, &get("/")).await, Why::NoKey(MissingKey::Deny));
}

/// As in a decision, the tier is determined first.
#[tokio::test]
async fn whom_a_tier_does_not_limit_needs_no_key() {
    let unlimited = || Why::Unlimited { tier: Some("staff".to_owned()) };
    for missing in [MissingKey::Shared, MissingKey::Skip, MissingKey::Deny] {
        let rule = || {
            let rule = rule("r").key(key::header("x-api-key")).on_missing_key(missing);
            rule.tier("staff", Tier::Unlimited)
        };
        assert_eq!(one(rule().tier_by(|_| "staff"), &get("/")).await, unlimited());
        assert_eq!(one(rule().tier_by_async(|_| async { "staff" }), &get("/")).await, unlimited());
        assert_eq!(one(rule().tier_by(|_| "staff").shadow(), &get("/")).await, unlimited());
        let custom = one(rule().tier_by(|_| Tier::Unlimited), &get("/")).await;
        assert_eq!(custom, Why::Unlimited { tier: None });
        assert_eq!(App::new([rule().tier_by(|_| "staff")]).get("/").await.status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn what_is_explained_is_what_is_decided() {
    let rules = || {
        [
            rule("a").on_path("/{x}/b"),
            rule("b").on(Method::POST, "/a/b"),
            rule("c").on_host("example.com").on_path("/{*rest}"),
            rule("d").when(|head| head.path().len() > 3),
            rule("e").key(key::header("x-none")).on_missing_key(MissingKey::Skip),
            rule("f").manual(),
        ]
    };
    let limiter = Limiter::builder().rules(rules()).build().unwrap();
    let app = App::over(&RateLimitLayer::new(limiter.clone()), ok);
    for (method, path, host) in [
        ("GET", "/a/b", "example.com"),
        ("POST", "/a/b", "EXAMPLE.com"),
        ("POST", "/a/b", "other.com"),
        ("GET", "/", "example.com"),
        ("PUT", "/x/y/z", "example.com"),
    ] {
        let request = Request::builder().method(method).uri(path).header("host", host).body(()).unwrap();
        let explained = limiter.rule_set().explain(&RequestHead::from(&request)).await;
        let counts = explained.iter().filter(|explained| matches!(explained.why, Why::Counts(_)));
        let counts: Vec<_> = counts.map(|explained| explained.rule).collect();
        let reply = app.send(request).await;
        let decision = reply.extensions().get::<ratekeeper::Decision>();
        let decided: Vec<_> =
            decision.map_or(Vec::new(), |decision| decision.outcomes().map(|(rule, _)| rule).collect());
        assert_eq!(counts, decided, "{method} {path} {host}");
    }
}
