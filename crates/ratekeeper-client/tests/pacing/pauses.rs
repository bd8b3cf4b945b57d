//! A refusal stops everyone.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::response::IntoResponse;
use axum::routing::any;
use http::{Request, StatusCode};
use ratekeeper_client::Pacer;
use tokio::time::Instant;
use tower::ServiceExt;

use crate::support::{Body, client, get, serve};

#[tokio::test]
async fn a_refusal_stops_everyone_and_they_resume_in_order() {
    let arrivals = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&arrivals);
    // Refuses the second request, and admits all others.
    let app = Router::new().route(
        "/{id}",
        any(move |Path(id): Path<usize>| {
            let mut arrivals = record.lock().unwrap();
            arrivals.push((id, Instant::now()));
            let is_refused = arrivals.len() == 2;
            async move {
                if is_refused {
                    (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")]).into_response()
                } else {
                    StatusCode::OK.into_response()
                }
            }
        }),
    );
    let server = serve(app).await;
    let (client, _) = client(Pacer::new());
    let call = |id: usize| {
        let request = Request::get(format!("http://{server}/{id}")).body(Body::default()).unwrap();
        client.clone().oneshot(request)
    };
    call(0).await.unwrap();
    let first = tokio::spawn(call(1));
    // Others come when the pause has begun.
    while arrivals.lock().unwrap().len() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut others = Vec::new();
    for id in 2..8 {
        others.push(tokio::spawn(call(id)));
        tokio::task::yield_now().await;
    }
    for other in others {
        assert_eq!(other.await.unwrap().unwrap().status(), StatusCode::OK);
    }
    assert_eq!(first.await.unwrap().unwrap().status(), StatusCode::OK, "sent again");

    let arrivals = arrivals.lock().unwrap();
    let pause_ends = arrivals[1].1 + Duration::from_secs(1);
    assert!(arrivals[2..].iter().all(|(_, at)| *at >= pause_ends), "nobody comes during the pause");
    // The refused request joined the line again before the others came.
    let order: Vec<_> = arrivals[2..].iter().map(|(id, _)| *id).collect();
    assert_eq!(order, [1, 2, 3, 4, 5, 6, 7]);
}

#[tokio::test]
async fn a_pause_stops_only_its_own_budget() {
    let calls = Arc::new(AtomicUsize::new(0));
    let app = Router::new()
        .route("/refused", any(|| async { (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "60")]) }))
        .fallback(any(move || {
            calls.fetch_add(1, Ordering::SeqCst);
            async { "hello" }
        }));
    let server = serve(app).await;
    let pacer = Pacer::builder().max_wait(Duration::from_secs(1)).key(|target| target.uri.path().to_owned());
    let (client, _) = client(pacer.build());
    let refused = || Request::get(format!("http://{server}/refused")).body(Body::default()).unwrap();
    let response = client.clone().oneshot(refused()).await.unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS, "the wait is too long for a retry");
    assert!(client.clone().oneshot(refused()).await.is_err());
    assert_eq!(client.oneshot(get(server)).await.unwrap().status(), StatusCode::OK);
}
