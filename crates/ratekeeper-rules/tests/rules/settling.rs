//! What a request actually cost, by its response.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use ratekeeper::{Limiter, RateLimitLayer};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{Req, get, left, of_file};

/// What was left for the next request, which costs three, after one that was answered with this status.
async fn left_after(limiter: &Limiter, status: u16) -> u32 {
    let answer = service_fn(move |_: Req| async move {
        let mut response = Response::new(Full::<Bytes>::default());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        Ok::<_, Infallible>(response)
    });
    RateLimitLayer::new(limiter.clone()).layer(answer).oneshot(get("/")).await.unwrap();
    left(limiter, get("/")).await.unwrap() + 3
}

#[tokio::test]
async fn a_response_can_make_its_request_free() {
    for (fields, kept, free) in [
        ("free-when = { status = 304 }", &[200, 301, 500][..], &[304][..]),
        ("free-when = { status = [304, \"5xx\"] }", &[200, 404, 499], &[304, 500, 503, 599]),
        ("free-when = { status-not = 401 }", &[401], &[200, 400, 403, 500]),
        ("free-when = { status-not = [401, \"2xx\"] }", &[200, 204, 401], &[302, 404, 500]),
    ] {
        for (statuses, expected) in [(kept, 97), (free, 100)] {
            for status in statuses {
                let limiter = of_file(&format!("cost = 3\n{fields}"));
                assert_eq!(left_after(&limiter, *status).await, expected, "{fields}: {status}");
            }
        }
    }
}

#[tokio::test]
async fn what_the_application_registered_tells_what_a_request_has_cost() {
    let limiter = || of_file("cost = 3\nsettle-by = \"by-status\"");
    assert_eq!(left_after(&limiter(), 201).await, 93);
    assert_eq!(left_after(&limiter(), 200).await, 97);
}
