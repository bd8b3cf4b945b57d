//! The adapter for `reqwest-middleware`.

use std::time::Duration;

use ratekeeper::{Limiter, Quota};
use ratekeeper_client::{Error, Paced, Pacer, PacingMiddleware};
use reqwest::StatusCode;

use crate::support::{rule, serve_limited};

#[tokio::test]
async fn a_reqwest_client_paces_itself_and_fails_with_the_wait() {
    let limiter = Limiter::builder().rule(rule("r", Quota::per_hour(3))).build().unwrap();
    let server = serve_limited(limiter).await;
    let pacer = Pacer::builder().max_wait(Duration::from_millis(100)).build();
    let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new())
        .with(PacingMiddleware::new(pacer))
        .build();
    for _ in 0..3 {
        let response = client.get(format!("http://{server}/")).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.extensions().get::<Paced>().unwrap().retries, 0);
    }
    let error = client.get(format!("http://{server}/")).send().await.unwrap_err();
    let reqwest_middleware::Error::Middleware(error) = error else { panic!("{error:?}") };
    let error = error.downcast_ref::<Error<std::convert::Infallible>>().unwrap();
    assert!(error.wait().unwrap() > Duration::from_secs(60), "{error}");
}
