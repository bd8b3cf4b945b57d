//! Which requests a rule counts.

use http::Method;

use crate::support::{get, left, of_file, request, with};

#[tokio::test]
async fn requests_are_matched_by_method_and_path() {
    let requests = [
        (Method::GET, "/"),
        (Method::POST, "/login"),
        (Method::GET, "/login?x=1"),
        (Method::DELETE, "/users/7"),
        (Method::HEAD, "/users/7/posts"),
    ];
    for (fields, expected) in [
        ("", [true, true, true, true, true]),
        ("match = \"/\"", [true, false, false, false, false]),
        ("match = \"/login\"", [false, true, true, false, false]),
        ("match = \"POST /login\"", [false, true, false, false, false]),
        ("match = \" POST   /login \"", [false, true, false, false, false]),
        ("match = [\"POST /login\", \"/users/{id}\"]", [false, true, false, true, false]),
        ("match = \"GET\"", [true, false, true, false, true]),
        ("match = [\"POST\", \"/\"]", [true, true, false, false, false]),
        ("match = { method = [\"POST\", \"DELETE\"] }", [false, true, false, true, false]),
        ("match = { path = [\"/\", \"/users/{*rest}\"] }", [true, false, false, true, true]),
        (
            "match = { method = [\"POST\", \"GET\"], path = [\"/login\", \"/users/{id}/posts\"] }",
            [false, true, true, false, true],
        ),
    ] {
        let limiter = of_file(fields);
        for ((method, path), expected) in requests.iter().zip(expected) {
            let counted = left(&limiter, request(method.clone(), path)).await.is_some();
            assert_eq!(counted, expected, "{fields}: {method} {path}");
        }
    }
}

#[tokio::test]
async fn requests_are_matched_by_host() {
    for (fields, expected) in [
        ("", [true, true, true, true]),
        ("host = \"api.example.com\"", [true, false, false, false]),
        ("host = \"*.example.com\"", [true, true, false, false]),
        ("host = [\"API.example.com\", \"[2001:db8::1]\"]", [true, false, true, false]),
        ("host = \"*.example.com\"\nmatch = \"POST\"", [false, false, false, false]),
        ("host = \"*.example.com\"\nmatch = \"GET /\"", [true, true, false, false]),
    ] {
        let limiter = of_file(fields);
        let hosts = ["api.example.com:8080", "www.example.com", "[2001:db8:0::1]:80", "example.com"];
        for (host, expected) in hosts.into_iter().zip(expected) {
            let counted = left(&limiter, with(get("/"), "host", host)).await.is_some();
            assert_eq!(counted, expected, "{fields}: {host}");
        }
    }
}

#[tokio::test]
async fn a_method_without_a_path_is_that_of_every_request() {
    let limiter = of_file("match = \"OPTIONS\"");
    assert_eq!(left(&limiter, request(Method::OPTIONS, "*")).await, Some(99));
}

#[tokio::test]
async fn what_the_application_registered_can_say_no() {
    for (fields, expected) in [
        ("when = \"is-beta\"", [false, true, false]),
        ("when = [\"is-beta\", \"is-get\"]", [false, true, false]),
        ("when = [\"is-get\"]", [true, true, false]),
    ] {
        let limiter = of_file(fields);
        let beta = with(get("/"), "x-beta", "1");
        for (request, expected) in [get("/"), beta, request(Method::POST, "/")].into_iter().zip(expected) {
            assert_eq!(left(&limiter, request).await.is_some(), expected, "{fields}");
        }
    }
}

#[tokio::test]
async fn a_rule_that_is_charged_by_hand_matches_nothing() {
    let limiter = of_file("by-hand = true");
    assert_eq!(left(&limiter, get("/")).await, None);
    let charged = limiter.charge("r", "alice").await.unwrap();
    assert_eq!(charged.outcome("r").unwrap().remaining(), 99);
    assert_eq!(left(&of_file("by-hand = false"), get("/")).await, Some(99));
}

#[tokio::test]
async fn a_method_of_the_applications_own_is_one() {
    let limiter = of_file("match = \"PURGE /cache\"");
    let purge = Method::from_bytes(b"PURGE").unwrap();
    assert_eq!(left(&limiter, request(purge, "/cache")).await, Some(99));
    assert_eq!(left(&limiter, request(Method::GET, "/cache")).await, None);
}

#[tokio::test]
async fn exceptions_are_not_counted() {
    for fields in [
        "except = \"/health\"",
        "except = [\"/health\", \"/x/{*rest}\"]",
        "match = \"GET\"\nexcept = [\"/{page}\"]",
    ] {
        let limiter = of_file(fields);
        assert_eq!(left(&limiter, get("/health")).await, None, "{fields}");
        assert_eq!(left(&limiter, get("/")).await, Some(99), "{fields}");
    }
}
