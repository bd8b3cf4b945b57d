//! Which rules apply to a request, what they cost, and that all of them decide together.

use http::{Method, StatusCode};
use ratekeeper::store::RuleName;
use ratekeeper::{MINUTE, MissingKey, Quota, RateLimitLayer, Rule, key};

use crate::support::{App, ReplyExt, RequestExt, get, limiter, millis, ok, request, secs};

fn rules_of(reply: &crate::support::Reply) -> Vec<&'static str> {
    let decision = reply.extensions().get::<ratekeeper::Decision>();
    decision.map_or(Vec::new(), |decision| decision.outcomes().map(|(rule, _)| rule.as_str()).collect())
}

fn rule(name: &str) -> Rule {
    Rule::new(name, Quota::per_minute(100)).key(key::global())
}

#[tokio::test]
async fn a_denial_by_one_rule_charges_none() {
    let app = App::new([
        Rule::new("wide", Quota::fixed_window(100, MINUTE)).key(key::global()),
        Rule::new("narrow", Quota::fixed_window(2, MINUTE)).key(key::header("x-user")),
        Rule::new("log", Quota::sliding_log(100, MINUTE)).key(key::peer_ip()),
    ]);
    let alice = || get("/").header("x-user", "alice").peer("192.0.2.1");
    assert_eq!(app.admitted(50, alice).await, 2);
    let reply = app.send(get("/").header("x-user", "bob").peer("192.0.2.1")).await;
    assert_eq!(reply.decision().outcome("wide").unwrap().remaining(), 97);
    assert_eq!(reply.decision().outcome("narrow").unwrap().remaining(), 1);
    assert_eq!(reply.decision().outcome("log").unwrap().remaining(), 97);
}

#[tokio::test]
async fn a_denied_request_does_not_put_off_the_next() {
    // If denials were charged, a caller that keeps trying would stay locked out (envoyproxy/ratelimit#185).
    let app = App::new([Rule::new("r", Quota::sliding_log(2, MINUTE)).key(key::global())]);
    assert_eq!(app.admitted(2, || get("/")).await, 2);
    for _ in 0..59 {
        app.clock.advance(secs(1));
        assert_eq!(app.admitted(1, || get("/")).await, 0);
    }
    app.clock.advance(secs(1));
    assert_eq!(app.admitted(5, || get("/")).await, 2);
}

#[tokio::test]
async fn an_idle_caller_never_has_more_than_the_burst() {
    let app = App::new([Rule::new("r", Quota::per_second(1).burst(10)).key(key::global())]);
    app.get("/").await;
    for idle in [millis(8_900), secs(3_600)] {
        app.clock.advance(idle);
        assert_eq!(app.admitted(30, || get("/")).await, 10);
        app.clock.advance(secs(60));
        app.get("/").await;
    }
}

#[tokio::test]
async fn only_the_rules_that_match_count() {
    let app = App::new([
        rule("all"),
        rule("login").on(Method::POST, "/login"),
        rule("users").on_path("/users/{id}"),
        rule("files").on_path("/files/{*rest}"),
    ]);
    for (method, path, rules) in [
        (Method::GET, "/", &["all"][..]),
        (Method::POST, "/login", &["all", "login"]),
        (Method::GET, "/login", &["all"]),
        (Method::POST, "/login/", &["all"]),
        (Method::POST, "/login?next=/", &["all", "login"]),
        (Method::POST, "/log%69n", &["all", "login"]),
        (Method::GET, "/users/7", &["all", "users"]),
        (Method::DELETE, "/users/7", &["all", "users"]),
        (Method::GET, "/users/7/posts", &["all"]),
        (Method::GET, "/users/", &["all"]),
        (Method::GET, "/files/a/b/c", &["all", "files"]),
        (Method::GET, "/files/", &["all"]),
    ] {
        let reply = app.send(request(method.clone(), path)).await;
        assert_eq!(rules_of(&reply), rules, "{method} {path}");
    }
}

#[tokio::test]
async fn all_patterns_that_match_count_each_rule_once_and_in_their_order() {
    let app = App::new([
        rule("b").on_path("/a/{x}").on_path("/{y}/b").on_path("/a/b"),
        rule("anywhere"),
        rule("a").on_path("/a/b"),
        rule("rest").on_path("/{*rest}"),
    ]);
    assert_eq!(rules_of(&app.get("/a/b").await), ["b", "anywhere", "a", "rest"]);
    let reply = app.get("/a/b").await;
    assert_eq!(reply.decision().outcome("b").unwrap().remaining(), 98);
}

#[tokio::test]
async fn head_is_limited_as_get_is() {
    let app = App::new([Rule::new("r", Quota::per_minute(2)).on(Method::GET, "/x").key(key::global())]);
    assert_eq!(app.admitted(2, || request(Method::HEAD, "/x")).await, 2);
    assert_eq!(app.admitted(1, || request(Method::GET, "/x")).await, 0);
    assert_eq!(app.admitted(1, || request(Method::POST, "/x")).await, 1);
}

#[tokio::test]
async fn several_methods_and_paths_are_one_rule() {
    let rule = Rule::new("r", Quota::per_minute(3)).key(key::global());
    let app = App::new([rule.on(Method::POST, "/x").on(Method::PUT, "/x").on_path("/y")]);
    for (method, path) in [(Method::POST, "/x"), (Method::PUT, "/x"), (Method::PATCH, "/y")] {
        assert_eq!(app.admitted(1, || request(method.clone(), path)).await, 1);
    }
    assert_eq!(app.admitted(1, || request(Method::POST, "/x")).await, 0);
    assert_eq!(app.admitted(1, || request(Method::GET, "/y")).await, 0);
    assert_eq!(app.admitted(1, || request(Method::GET, "/x")).await, 1);
}

#[tokio::test]
async fn a_rule_applies_when_all_its_predicates_are_true() {
    let app = App::new([rule("r")
        .on_path("/api/{*rest}")
        .when(|head| head.headers().contains_key("x-a"))
        .when(|head| head.uri().query().is_none())]);
    assert_eq!(rules_of(&app.send(get("/api/x").header("x-a", "1")).await), ["r"]);
    assert_eq!(rules_of(&app.send(get("/api/x?q").header("x-a", "1")).await), [""; 0]);
    assert_eq!(rules_of(&app.send(get("/x").header("x-a", "1")).await), [""; 0]);
    assert_eq!(rules_of(&app.get("/api/x").await), [""; 0]);
}

#[tokio::test]
async fn a_request_that_no_rule_matches_goes_on_as_it_is() {
    let app = App::new([Rule::new("r", Quota::per_minute(1)).on_path("/x").key(key::global())]);
    for _ in 0..3 {
        let reply = app.get("/y").await;
        assert_eq!(reply.status(), StatusCode::OK);
        assert_eq!(reply.trio(), None);
        assert!(reply.headers().is_empty() && reply.extensions().is_empty());
    }
    assert_eq!(app.calls(), 3);
}

#[tokio::test]
async fn a_request_costs_what_its_rule_says() {
    let app = App::new([Rule::new("r", Quota::per_minute(10)).key(key::global()).cost(4)]);
    assert_eq!(app.admitted(3, || get("/")).await, 2);
    assert_eq!(app.get("/").await.trio().unwrap().1, 2);
}

#[tokio::test]
async fn a_cost_may_depend_on_the_request() {
    let rule = Rule::new("r", Quota::per_minute(10)).key(key::global());
    let app = App::new([rule.cost_by(|head| match *head.method() {
        Method::GET => 1,
        _ => 5,
    })]);
    assert_eq!(app.send(request(Method::POST, "/")).await.trio().unwrap().1, 5);
    assert_eq!(app.get("/").await.trio().unwrap().1, 4);
    // A request that does not fit is denied and leaves the budget for those that do.
    let reply = app.send(request(Method::POST, "/")).await;
    assert_eq!((reply.status(), reply.trio().unwrap().1), (StatusCode::TOO_MANY_REQUESTS, 4));
    assert_eq!(reply.field("retry-after"), Some("6"));
    assert_eq!(app.admitted(5, || get("/")).await, 4);
}

#[tokio::test]
async fn a_cost_of_nothing_is_admitted_and_takes_nothing() {
    let rule = Rule::new("r", Quota::per_minute(1)).key(key::global());
    let app = App::new([rule.cost_by(|head| u32::from(head.path() != "/health"))]);
    assert_eq!(app.admitted(2, || get("/")).await, 1);
    assert_eq!(app.admitted(5, || get("/health")).await, 5);
}

#[tokio::test]
async fn requests_that_miss_a_key_share_one_unless_it_is_said() {
    let app = App::new([Rule::new("r", Quota::per_minute(2)).key(key::header("x-user"))]);
    assert_eq!(app.admitted(5, || get("/")).await, 2);
    // No caller can join the shared budget by naming it.
    for name in ["*", "-", "missing"] {
        assert_eq!(app.admitted(1, || get("/").header("x-user", name)).await, 1, "{name:?}");
    }
}

#[tokio::test]
async fn requests_that_miss_a_key_may_be_skipped_by_the_rule_alone() {
    let app = App::new([
        Rule::new("user", Quota::per_minute(1)).key(key::header("x-user")).on_missing_key(MissingKey::Skip),
        Rule::new("all", Quota::per_minute(3)).key(key::global()),
    ]);
    let reply = app.get("/").await;
    assert_eq!(rules_of(&reply), ["all"]);
    assert_eq!(app.admitted(5, || get("/")).await, 2);
}

#[tokio::test]
async fn requests_that_miss_a_key_may_be_denied() {
    let app = App::new([
        Rule::new("all", Quota::per_minute(3)).key(key::global()),
        Rule::new("user", Quota::per_minute(5)).key(key::header("x-user")).on_missing_key(MissingKey::Deny),
    ]);
    for _ in 0..5 {
        let reply = app.get("/").await;
        assert_eq!(reply.status(), StatusCode::TOO_MANY_REQUESTS);
        // Retrying would not help.
        assert_eq!(reply.field("retry-after"), None);
        assert_eq!(reply.decision().denied_by().map(RuleName::as_str).collect::<Vec<_>>(), ["user"]);
    }
    assert_eq!(app.calls(), 0);
    // And nothing was charged.
    assert_eq!(app.admitted(5, || get("/").header("x-user", "alice")).await, 3);
}

#[tokio::test]
async fn a_missing_key_is_never_an_error_of_the_servers() {
    // Without connect info, other libraries answer 500.
    for missing in [MissingKey::Shared, MissingKey::Skip, MissingKey::Deny] {
        let later = key::from_async_fn(|_| async { None::<u64> });
        let app = App::new([
            Rule::new("peer", Quota::per_minute(1)).on_missing_key(missing),
            Rule::new("later", Quota::per_minute(1)).key(later).on_missing_key(missing),
        ]);
        for _ in 0..3 {
            let status = app.get("/").await.status();
            assert!(!status.is_server_error(), "{missing:?} {status}");
        }
    }
}

#[tokio::test]
async fn a_quota_alone_is_a_limit_for_each_peer() {
    let layer = ratekeeper::RateLimitLayer::new(Quota::per_hour(2));
    let app = App::over(&layer, crate::support::ok);
    assert_eq!(app.admitted(3, || get("/a").peer("192.0.2.1")).await, 2);
    assert_eq!(app.admitted(3, || get("/b").peer("192.0.2.2")).await, 2);
    assert_eq!(app.admitted(3, || get("/c").peer("192.0.2.1")).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_at_once_on_a_limit_of_ten_are_ten() {
    let app = App::new([
        Rule::new("a", Quota::sliding_window(10, MINUTE)).key(key::global()),
        Rule::new("b", Quota::per_minute(1_000)).key(key::peer_ip()),
    ]);
    let tasks = (0..200).map(|_| {
        let app = app.clone();
        tokio::spawn(async move { app.get("/").await.status() == StatusCode::OK })
    });
    let mut admitted = 0;
    for task in tasks.collect::<Vec<_>>() {
        admitted += usize::from(task.await.unwrap());
    }
    assert_eq!((admitted, app.calls()), (10, 10));
}

#[tokio::test]
async fn a_rule_that_is_charged_by_hand_matches_no_request() {
    let rules = [
        Rule::new("requests", Quota::per_minute(5)).key(key::global()),
        Rule::new("messages", Quota::per_minute(5)).manual(),
    ];
    let (limiter, _) = limiter(rules);
    let app = App::over(&RateLimitLayer::new(limiter.clone()), ok);
    let reply = app.get("/").await;
    assert_eq!(rules_of(&reply), ["requests"]);
    let charged = limiter.charge("messages", "alice").await.unwrap();
    assert_eq!(charged.outcome("messages").unwrap().remaining(), 4);
    // Also if it is the only rule.
    let app = App::new([Rule::new("messages", Quota::per_minute(1)).manual()]);
    assert_eq!(app.admitted(3, || get("/")).await, 3);
}

#[test]
fn what_a_rule_says_in_vain_is_an_error() {
    let messages = || Rule::new("messages", Quota::per_minute(5)).manual();
    for (rule, in_vain) in [
        (messages().on_path("/messages"), "the path `/messages`"),
        (messages().on(Method::POST, "/messages"), "the path `/messages`"),
        (messages().on_method(Method::POST), "the method `POST`"),
        (messages().on_host("example.com"), "the host `example.com`"),
        (messages().when(|_| true), "the predicate"),
    ] {
        let error = ratekeeper::Limiter::builder().rule(rule).build().unwrap_err().to_string();
        let expected =
            format!("rule `messages` is charged by hand and matches no request, so {in_vain} is in vain");
        assert_eq!(error, expected);
    }
}

#[tokio::test]
async fn an_exception_is_not_counted_however_it_is_spelled() {
    let rule = || {
        Rule::new("r", Quota::per_minute(1)).key(key::global()).except("/health").except("/metrics/{*rest}")
    };
    // Alone, and beside others.
    for rules in [vec![rule()], vec![rule(), Rule::new("other", Quota::per_minute(9)).on_path("/other")]] {
        let app = App::new(rules);
        for path in ["/health", "/health?x", "/%68ealth", "/metrics/a/b"] {
            assert_eq!(app.admitted(3, || get(path)).await, 3, "{path}");
            assert_eq!(app.admitted(1, || request(Method::POST, path)).await, 1, "{path}");
        }
        assert_eq!(app.admitted(3, || get("/")).await, 1);
        for path in ["/health/", "/metrics", "/metrics/", "/healthy", "//health"] {
            assert_eq!(app.admitted(1, || get(path)).await, 0, "{path}");
        }
    }
    let below = App::new([rule().on_path("/metrics/{*rest}").on_path("/api/{*rest}")]);
    assert_eq!(below.admitted(3, || get("/metrics/a")).await, 3);
    assert_eq!(below.admitted(3, || get("/api/a")).await, 1);
}
