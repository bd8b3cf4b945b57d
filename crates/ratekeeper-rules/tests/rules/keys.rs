//! Who is counted.

use http::Method;
use ratekeeper::key::{self, KeyExtractor, TrustedProxies};
use ratekeeper::{Limiter, MemoryStore};

use crate::support::{Req, User, code, file, from, get, left, limiter, of_file, request, rule, with};

/// Asserts that a key from a file and one from code share their counters, and that a request that differs has
/// another key.
async fn same(key: &str, in_code: impl KeyExtractor, other: impl Fn() -> Req) {
    let store = MemoryStore::new();
    let file = limiter(rule(&format!("key = {key}")), &store);
    let code = limiter(code().key(in_code), &store);
    assert_eq!(left(&code, get("/users/7")).await, Some(99), "{key}");
    assert_eq!(left(&file, get("/users/7")).await, Some(98), "{key}");
    assert_eq!(left(&code, get("/users/7")).await, Some(97), "{key}");
    assert_eq!(left(&file, other()).await, Some(99), "{key}");
    assert_eq!(left(&code, other()).await, Some(98), "{key}");
}

#[tokio::test]
async fn without_a_key_it_is_the_peer_who_is_counted() {
    let store = MemoryStore::new();
    let (file, code) = (limiter(rule(""), &store), limiter(code(), &store));
    assert_eq!(left(&code, get("/")).await, Some(99));
    assert_eq!(left(&file, get("/")).await, Some(98));
    assert_eq!(left(&file, from(get("/"), "10.0.0.2:1")).await, Some(99));
}

#[tokio::test]
async fn what_a_request_carries_is_the_key_of_code() {
    let other_key = || with(get("/users/7"), "x-api-key", "other");
    let other_cookie = || with(get("/users/7"), "cookie", "session=other");
    same("\"peer-ip\"", key::peer_ip(), || from(get("/users/7"), "10.0.0.2:1")).await;
    same("{ header = \"X-Api-Key\" }", key::header("x-api-key"), other_key).await;
    same("{ header = \"x-api-key\", secret = true }", key::header("x-api-key").secret(), other_key).await;
    same("{ cookie = \"session\" }", key::cookie("session"), other_cookie).await;
    same("{ cookie = \"session\", secret = true }", key::cookie("session").secret(), other_cookie).await;
    same("\"bearer\"", key::bearer(), || with(get("/users/7"), "authorization", "Bearer other")).await;
}

#[tokio::test]
async fn what_a_request_is_for_is_the_key_of_code() {
    same("\"path\"", key::path(), || get("/users/8")).await;
    same("\"method\"", key::method(), || request(Method::PUT, "/users/7")).await;
    same("\"grpc-service\"", key::grpc_service(), || get("/others/7")).await;
    same("\"grpc-method\"", key::grpc_method(), || get("/users/8")).await;
}

#[tokio::test]
async fn a_parameter_of_the_path_is_a_key() {
    let limiter = of_file("match = \"/users/{id}/{*rest}\"\nkey = { path-param = \"id\" }");
    assert_eq!(left(&limiter, get("/users/7/a")).await, Some(99));
    assert_eq!(left(&limiter, get("/users/7/b")).await, Some(98));
    assert_eq!(left(&limiter, get("/users/8/a")).await, Some(99));
}

#[tokio::test]
async fn keys_are_alternatives_and_required_as_in_code() {
    let other_key = || with(get("/users/7"), "x-api-key", "other");
    same(
        "{ first-of = [{ header = \"x-none\" }, { header = \"x-api-key\" }] }",
        key::header("x-api-key"),
        other_key,
    )
    .await;
    let first_of = "{ first-of = [{ header = \"x-none\" }, \"bearer\", \"peer-ip\"] }";
    same(first_of, key::header("x-none").or(key::bearer()).or(key::peer_ip()), || {
        with(get("/users/7"), "authorization", "Bearer other")
    })
    .await;
    let both = "[\"path\", { required = { header = \"x-api-key\" } }]";
    same(both, (key::path(), key::required(key::header("x-api-key"))), other_key).await;
    let missing = "[{ header = \"x-none\" }, \"path\", { header = \"x-gone\" }]";
    let in_code = (key::header("x-none"), key::path(), key::header("x-gone"));
    same(missing, in_code, || get("/users/8")).await;

    let deny = |key: &str| of_file(&format!("key = {key}\non-missing-key = \"skip\""));
    assert_eq!(left(&deny("[\"path\", { required = { header = \"x-none\" } }]"), get("/")).await, None);
    assert_eq!(left(&deny("[\"path\", { header = \"x-none\" }]"), get("/")).await, Some(99));
}

#[tokio::test]
async fn what_was_registered_is_a_key() {
    let other_user = || {
        let mut request = get("/users/7");
        request.extensions_mut().insert(User(8));
        request
    };
    same("{ registered = \"user\" }", key::extension(|user: &User| user.0), other_user).await;
    let other_tenant = || with(get("/users/7"), "x-tenant", "other");
    same("{ registered = \"tenant\" }", key::header("x-tenant"), other_tenant).await;
}

#[tokio::test]
async fn the_client_behind_proxies_is_the_key_of_code() {
    let networks = || TrustedProxies::networks(["10.0.0.0/8"]).unwrap();
    let client = "{ client-ip = { networks = \"10.0.0.0/8\" } }";
    same(client, key::client_ip(networks()), || with(get("/users/7"), "x-forwarded-for", "192.0.2.1")).await;
    let client = "{ client-ip = { hops = 1, field = \"Forwarded\" } }";
    let forwarded = key::client_ip(TrustedProxies::hops(1).in_forwarded());
    same(client, forwarded, || with(get("/users/7"), "forwarded", "for=192.0.2.1")).await;
    let client = "{ client-ip = { networks = [\"10.0.0.0/8\"], field = \"X-Real-IP\" } }";
    let single = key::client_ip(networks().in_field("x-real-ip"));
    same(client, single, || with(get("/users/7"), "x-real-ip", "192.0.2.1")).await;
}

#[tokio::test]
async fn the_proxies_that_a_file_trusts_are_trusted_by_its_rules() {
    for key in ["\"client-ip\"", "{ client-ip = {} }"] {
        let file = file(&format!(
            "[trusted-proxies]\nnetworks = \"10.0.0.0/8\"\n[[rules]]\nname = \"r\"\nquota = \"100/day\"\nkey = {key}"
        ));
        let limiter = file.limiter().build().unwrap();
        let client = |address| with(get("/"), "x-forwarded-for", address);
        assert_eq!(left(&limiter, client("203.0.113.1")).await, Some(99), "{key}");
        assert_eq!(left(&limiter, client("203.0.113.2")).await, Some(99), "{key}");
        assert_eq!(left(&limiter, client("203.0.113.1")).await, Some(98), "{key}");
        // A peer that is not a proxy is not trusted.
        assert_eq!(left(&limiter, from(client("203.0.113.1"), "192.0.2.7:1")).await, Some(99), "{key}");
    }
}

#[tokio::test]
async fn of_an_address_as_many_bits_count_as_is_said() {
    async fn cut(limiter: &Limiter, address: impl Fn(&'static str) -> Req) {
        assert_eq!(left(limiter, address("2001:db8:0:1::1")).await, Some(99));
        assert_eq!(left(limiter, address("2001:db8:0:2::1")).await, Some(98));
        assert_eq!(left(limiter, address("2001:db8:1::1")).await, Some(99));
    }
    let peer = |address: &'static str| from(get("/"), &format!("[{address}]:1"));
    cut(&of_file("key = { peer-ip = { ipv6-prefix = 48 } }"), peer).await;
    let client = |address| with(get("/"), "x-forwarded-for", address);
    cut(&of_file("key = { client-ip = { hops = 1, ipv6-prefix = 48 } }"), client).await;
}

#[tokio::test]
async fn a_list_of_keys_is_the_tuple_of_them() {
    let other = || with(get("/users/7"), "x-api-key", "other");
    let header = || key::header("x-api-key");
    same("[{ header = \"x-api-key\" }]", header(), other).await;
    same("[\"peer-ip\", { header = \"x-api-key\" }]", (key::peer_ip(), header()), other).await;
    let four = "[\"peer-ip\", { header = \"x-api-key\" }, \"method\", { registered = \"tenant\" }]";
    let tuple = (key::peer_ip(), header(), key::method(), key::header("x-tenant"));
    same(four, tuple, other).await;
    let five = "[\"peer-ip\", { header = \"x-api-key\" }, \"method\", \"path\", \"bearer\"]";
    let tuple = ((key::peer_ip(), header(), key::method(), key::path()), key::bearer());
    same(five, tuple, other).await;
}

#[tokio::test]
async fn one_budget_is_for_all() {
    for (fields, in_code) in [
        ("key = \"global\"", code().key(key::global())),
        ("key = { constant = \"all\" }", code().key(key::constant("all"))),
    ] {
        let store = MemoryStore::new();
        let (file, code) = (limiter(rule(fields), &store), limiter(in_code, &store));
        assert_eq!(left(&code, get("/")).await, Some(99), "{fields}");
        assert_eq!(left(&file, from(get("/"), "192.0.2.1:1")).await, Some(98), "{fields}");
    }
}
