//! Which requests a rule counts.

use http::Method;

use crate::support::{left, of_file, request};

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
async fn a_method_of_the_applications_own_is_one() {
    let limiter = of_file("match = \"PURGE /cache\"");
    let purge = Method::from_bytes(b"PURGE").unwrap();
    assert_eq!(left(&limiter, request(purge, "/cache")).await, Some(99));
    assert_eq!(left(&limiter, request(Method::GET, "/cache")).await, None);
}
