//! Which caller is counted, through the layer.

use http::Method;
use ratekeeper::key::{self, TrustedProxies};
use ratekeeper::{Key, MissingKey, Quota, RequestHead, Rule, RuleSet, explain::Why};

use crate::support::{App, RequestExt, get, request};

fn app(key: impl key::KeyExtractor) -> App {
    App::new([Rule::new("r", Quota::per_minute(2)).key(key)])
}

#[tokio::test]
async fn a_forged_forwarding_field_does_not_make_a_new_caller() {
    let app = app(key::client_ip(TrustedProxies::networks(["10.0.0.0/8"]).unwrap()));
    let mut admitted = 0;
    for n in 0..20 {
        let forged = format!("198.51.100.{n}, 203.0.113.9");
        admitted += app.admitted(1, || get("/").peer("10.0.0.1").header("x-forwarded-for", &forged)).await;
    }
    assert_eq!(admitted, 2);
    let other = || get("/").peer("10.0.0.1").header("x-forwarded-for", "203.0.113.10");
    assert_eq!(app.admitted(3, other).await, 2);
}

#[tokio::test]
async fn going_around_the_proxy_does_not_make_a_new_caller() {
    let app = app(key::client_ip(TrustedProxies::networks(["10.0.0.0/8"]).unwrap()));
    let mut admitted = 0;
    for n in 0..20 {
        let forged = format!("198.51.100.{n}");
        admitted += app.admitted(1, || get("/").peer("203.0.113.9").header("x-forwarded-for", &forged)).await;
    }
    assert_eq!(admitted, 2);
}

#[tokio::test]
async fn moving_about_in_a_slash_64_does_not_make_a_new_caller() {
    let app = app(key::peer_ip());
    let mut admitted = 0;
    for n in 0..20 {
        let address = format!("2001:db8:1:2::{n:x}");
        admitted += app.admitted(1, || get("/").peer(&address)).await;
    }
    assert_eq!(admitted, 2);
    assert_eq!(app.admitted(3, || get("/").peer("2001:db8:1:3::1")).await, 2);
}

#[tokio::test]
async fn ipv4_callers_on_an_ipv6_socket_are_callers_of_their_own() {
    let app = app(key::peer_ip());
    for n in 0..20 {
        let address = format!("::ffff:192.0.2.{n}");
        assert_eq!(app.admitted(3, || get("/").peer(&address)).await, 2);
    }
}

#[tokio::test]
async fn a_query_does_not_make_a_new_caller() {
    let app = app(key::path());
    let mut admitted = 0;
    for n in 0..20 {
        admitted += app.admitted(1, || get(&format!("/login?x={n}"))).await;
    }
    assert_eq!(admitted, 2);
}

/// The same handler serves both methods.
#[tokio::test]
async fn to_ask_for_the_head_alone_does_not_make_a_new_caller() {
    let app = app((key::peer_ip(), key::method()));
    let admitted =
        async |method: Method| app.admitted(10, || request(method.clone(), "/").peer("192.0.2.1")).await;
    assert_eq!((admitted(Method::GET).await, admitted(Method::HEAD).await), (2, 0));
    assert_eq!(admitted(Method::POST).await, 2);
}

#[tokio::test]
async fn another_spelling_of_a_parameter_does_not_make_a_new_caller() {
    let rule = Rule::new("r", Quota::per_minute(2)).on_path("/users/{id}/mail").key(key::path_param("id"));
    let app = App::new([rule]);
    let mut admitted = 0;
    for path in
        ["/users/alice/mail", "/users/%61lice/mail", "/users/alic%65/mail?x", "/users/%61%6C%69%63%65/mail"]
    {
        admitted += app.admitted(1, || get(path)).await;
    }
    assert_eq!(admitted, 2);
    assert_eq!(app.admitted(3, || get("/users/bob/mail")).await, 2);
}

#[tokio::test]
async fn a_parameter_of_the_rest_is_a_key() {
    let rule = Rule::new("r", Quota::per_minute(2)).on_path("/files/{*path}").key(key::path_param("path"));
    let app = App::new([rule]);
    assert_eq!(app.admitted(3, || get("/files/a/b")).await, 2);
    assert_eq!(app.admitted(3, || get("/files/a/c")).await, 2);
}

#[tokio::test]
async fn a_parameter_is_found_in_any_pattern_by_which_a_rule_matches() {
    let rule =
        || Rule::new("r", Quota::per_hour(1)).key(key::path_param("id")).on_missing_key(MissingKey::Skip);
    for rule in [
        rule().on_path("/{kind}/{id}").on_path("/users/{user}"),
        rule().on_path("/users/{user}").on_path("/{kind}/{id}"),
        rule().on_method(Method::POST).on_path("/users/{id}"),
        rule().on_path("/{*rest}").on_path("/users/{id}").on_path("/{*all}"),
        rule().on_path("/users/7").on_path("/users/8").on_path("/users/{id}"),
        rule().on_path("/users/{id}").on_host("a.example").on_host("*.example"),
        rule().when(|_| true).on_path("/{kind}/{id}").on_path("/users/{user}"),
    ] {
        let explained = RuleSet::new([rule.clone()]).unwrap();
        let app = App::new([rule]);
        for id in ["7", "8"] {
            let request = || request(Method::POST, &format!("http://a.example/users/{id}"));
            assert_eq!(app.admitted(3, request).await, 1, "{id}");
            let why = explained.explain(&RequestHead::from(&request())).await.remove(0).why;
            assert!(matches!(&why, Why::Counts(counted) if counted.key == Key::from(id)), "{why:?}");
        }
    }
    // But not in a pattern for another method.
    let app = App::new([rule().on(Method::PUT, "/users/{id}").on(Method::POST, "/{kind}/{user}")]);
    assert_eq!(app.admitted(3, || request(Method::POST, "/users/7")).await, 3);
}

#[tokio::test]
async fn tuples_count_each_combination() {
    let app = app((key::header("x-user"), key::method()));
    for method in [Method::GET, Method::POST] {
        for user in ["alice", "bob"] {
            let request = || request(method.clone(), "/").header("x-user", user);
            assert_eq!(app.admitted(3, request).await, 2);
        }
    }
}

#[tokio::test]
async fn keys_of_any_bytes_and_length_are_counted_apart() {
    let app = app(key::header("x-user"));
    let long = |last| [vec![b'x'; 8_192], vec![last]].concat();
    for user in [b"".to_vec(), b"\xff\xfe".to_vec(), b"a|b".to_vec(), long(b'a'), long(b'b')] {
        assert_eq!(app.admitted(3, || get("/").header("x-user", &user)).await, 2, "{user:?}");
    }
}

#[tokio::test]
async fn a_key_that_is_looked_up_is_counted_as_any_other() {
    let app = app(key::from_async_fn(|head| {
        let token = head.headers().get("x-token").cloned();
        async move {
            tokio::task::yield_now().await;
            // Two tokens of one account.
            token.map(|token| u64::from(token.as_bytes()[0] / 2))
        }
    }));
    assert_eq!(app.admitted(1, || get("/").header("x-token", "b")).await, 1);
    assert_eq!(app.admitted(3, || get("/").header("x-token", "c")).await, 1);
    assert_eq!(app.admitted(3, || get("/").header("x-token", "d")).await, 2);
}

#[tokio::test]
async fn what_an_outer_layer_put_there_is_counted() {
    #[derive(Clone)]
    struct User(u64);

    let app = app(key::extension(|user: &User| user.0));
    assert_eq!(app.admitted(3, || get("/").extension(User(1))).await, 2);
    assert_eq!(app.admitted(3, || get("/").extension(User(2))).await, 2);
}

#[tokio::test]
async fn the_same_key_under_two_rules_is_counted_by_each() {
    let app = App::new([
        Rule::new("a", Quota::per_minute(2)).on_path("/a").key(key::global()),
        Rule::new("b", Quota::per_minute(2)).on_path("/b").key(key::global()),
    ]);
    assert_eq!(app.admitted(3, || get("/a")).await, 2);
    assert_eq!(app.admitted(3, || get("/b")).await, 2);
}

/// Otherwise one caller without a token could use up the budget of all callers without one.
#[tokio::test]
async fn a_part_that_is_missing_leaves_the_others_in_the_key() {
    let by_headers = app((key::header("x-a"), key::header("x-b")));
    for name in ["alice", "bob"] {
        assert_eq!(by_headers.admitted(3, || get("/").header("x-a", name)).await, 2, "{name}");
        assert_eq!(by_headers.admitted(3, || get("/").header("x-b", name)).await, 2, "{name}");
    }
    let by_token = app((key::peer_ip(), key::bearer()));
    for peer in ["192.0.2.7", "192.0.2.8"] {
        assert_eq!(by_token.admitted(3, || get("/").peer(peer)).await, 2, "{peer}");
    }
}

#[tokio::test]
async fn an_empty_value_is_a_missing_one() {
    let rule = |key: Box<dyn Fn(Rule) -> Rule>| {
        App::new([key(Rule::new("r", Quota::per_minute(2))).on_missing_key(MissingKey::Deny)])
    };
    let by_header = rule(Box::new(|rule| rule.key(key::header("x-a"))));
    let by_secret = rule(Box::new(|rule| rule.key(key::header("x-a").secret())));
    let by_cookie = rule(Box::new(|rule| rule.key(key::cookie("a"))));
    let by_extension = rule(Box::new(|rule| rule.key(key::extension(|name: &String| name.clone()))));
    for empty in ["", " ", "\t "] {
        assert_eq!(by_header.admitted(1, || get("/").header("x-a", empty)).await, 0);
        assert_eq!(by_secret.admitted(1, || get("/").header("x-a", empty)).await, 0);
    }
    for empty in ["a=", "a=\"\"", "a= ", "a=%22%22"] {
        assert_eq!(by_cookie.admitted(1, || get("/").header("cookie", empty)).await, 0, "{empty}");
    }
    let mut request = get("/");
    request.extensions_mut().insert(String::new());
    assert_eq!(by_extension.send(request).await.status(), 429);
}
