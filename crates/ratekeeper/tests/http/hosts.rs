//! Rules for some hosts only.

use http::{Method, Request, Version};
use ratekeeper::{Quota, Rule, key};

use crate::support::{App, Reply, RequestExt, get};

fn rule(name: &str) -> Rule {
    Rule::new(name, Quota::per_minute(100)).key(key::global())
}

fn rules_of(reply: &Reply) -> Vec<&'static str> {
    let decision = reply.extensions().get::<ratekeeper::Decision>();
    decision.map_or(Vec::new(), |decision| decision.outcomes().map(|(rule, _)| rule.as_str()).collect())
}

fn app() -> App {
    App::new([
        rule("api").on_host("api.example.com"),
        rule("below").on_host("*.example.com"),
        rule("either").on_host("example.com").on_host("[2001:db8::1]").on_path("/x").on(Method::POST, "/y"),
    ])
}

async fn matching(host: &'static str, path: &str) -> Vec<&'static str> {
    rules_of(&app().send(get(path).header("host", host)).await)
}

#[tokio::test]
async fn a_rule_applies_at_its_hosts_only() {
    for (host, rules) in [
        ("api.example.com", &["api", "below"][..]),
        ("www.example.com", &["below"]),
        ("a.b.example.com", &["below"]),
        ("example.com", &["either"]),
        ("[2001:db8::1]", &["either"]),
        ("badexample.com", &[]),
        ("example.com.evil.example", &[]),
        ("[2001:db8::2]", &[]),
        ("", &[]),
    ] {
        assert_eq!(matching(host, "/x").await, rules, "{host}");
    }
}

#[tokio::test]
async fn a_host_is_one_however_it_is_spelled() {
    for host in ["API.Example.COM", "api.example.com:8443", "api.example.com.", "Api.example.com.:80"] {
        assert_eq!(matching(host, "/x").await, ["api", "below"], "{host}");
    }
    // HTTP/1 strips white space around a field, HTTP/2 does not.
    for host in ["api.example.com ", " api.example.com", "\tapi.example.com:443 \t", "api.example.com. "] {
        assert_eq!(matching(host, "/x").await, ["api", "below"], "{host:?}");
    }
    for host in ["[2001:DB8::1]:8080", "[2001:db8:0:0:0:0:0:1]", "[2001:db8::1] "] {
        assert_eq!(matching(host, "/x").await, ["either"], "{host}");
    }
}

#[tokio::test]
async fn the_path_has_to_match_as_well() {
    assert_eq!(matching("example.com", "/x").await, ["either"]);
    assert_eq!(matching("example.com", "/y").await, [""; 0]);
    let post = Request::post("/y").header("host", "example.com").body(()).unwrap();
    assert_eq!(rules_of(&app().send(post).await), ["either"]);
}

#[tokio::test]
async fn the_authority_of_the_uri_counts_before_the_field() {
    // That is where HTTP/2 and requests to a proxy carry the host.
    let mut request =
        Request::get("https://api.example.com:443/x").version(Version::HTTP_2).body(()).unwrap();
    assert_eq!(rules_of(&app().send(request.clone()).await), ["api", "below"]);
    request.headers_mut().insert("host", "example.com".parse().unwrap());
    assert_eq!(rules_of(&app().send(request).await), ["api", "below"]);
}

#[tokio::test]
async fn a_request_without_a_host_matches_no_rule_that_names_one() {
    assert_eq!(rules_of(&app().get("/x").await), [""; 0]);
    let mut request = get("/x");
    request.headers_mut().insert("host", http::HeaderValue::from_bytes(b"api.example.com\xff").unwrap());
    assert_eq!(rules_of(&app().send(request).await), [""; 0]);
    let app = App::new([rule("all"), rule("api").on_host("api.example.com")]);
    assert_eq!(rules_of(&app.get("/x").await), ["all"]);
}

#[tokio::test]
async fn a_host_that_never_ends_matches_nothing() {
    let host = "a.".repeat(30_000) + "example.com";
    let mut request = get("/x");
    request.headers_mut().insert("host", host.parse().unwrap());
    assert_eq!(rules_of(&app().send(request).await), [""; 0]);
}

#[tokio::test]
async fn a_rule_can_be_for_a_method_whatever_is_asked_for() {
    let app = App::new([rule("writes").on_method(Method::POST).on_method(Method::PUT).on_path("/x")]);
    for (method, path, matches) in
        [("POST", "/", true), ("PUT", "/a/b", true), ("GET", "/x", true), ("GET", "/", false)]
    {
        let request = Request::builder().method(method).uri(path).body(()).unwrap();
        assert_eq!(!rules_of(&app.send(request).await).is_empty(), matches, "{method} {path}");
    }
}
