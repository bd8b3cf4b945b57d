//! tower's contract, to the letter.

use std::convert::Infallible;
use std::future::{Ready, poll_fn, ready};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use http::{Request, StatusCode};
use ratekeeper::{Limiter, MINUTE, Quota, RateLimitLayer, Rule, key};
use tower::limit::ConcurrencyLimit;
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::support::stores::Slow;
use crate::support::{Reply, clock, get, limiter, memory, millis, ok, secs};

/// A service that is ready only when polled twice, and panics when it is called before.
#[derive(Default)]
struct Strict {
    asked: u8,
    calls: Arc<AtomicUsize>,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        // A clone is not ready just because the original was.
        Self { asked: 0, calls: Arc::clone(&self.calls) }
    }
}

impl Service<Request<()>> for Strict {
    type Response = Reply;
    type Error = Infallible;
    type Future = Ready<Result<Reply, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.asked = (self.asked + 1).min(2);
        if self.asked == 2 {
            return Poll::Ready(Ok(()));
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        assert_eq!(self.asked, 2, "called without being ready");
        self.asked = 0;
        self.calls.fetch_add(1, Ordering::SeqCst);
        ready(Ok(ok(request)))
    }
}

fn global(quota: Quota) -> Rule {
    Rule::new("r", quota).key(key::global())
}

fn looked_up(quota: Quota) -> Rule {
    Rule::new("r", quota).key(key::from_async_fn(|_| async {
        tokio::task::yield_now().await;
        Some("key")
    }))
}

fn slow(rule: Rule, after: Duration) -> Limiter {
    let store = Slow { store: memory(&clock()), after };
    Limiter::builder().store(store).rule(rule).build().unwrap()
}

/// Calls one service repeatedly, first one request at a time, then all at once.
async fn drive(limiter: Limiter, admitted: usize) {
    let inner = Strict::default();
    let calls = Arc::clone(&inner.calls);
    let mut service = RateLimitLayer::new(limiter).layer(inner);
    let mut statuses = Vec::new();
    for _ in 0..3 {
        poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
        statuses.push(service.call(get("/")).await.unwrap().status());
    }
    let mut replies = Vec::new();
    for _ in 0..4 {
        poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
        replies.push(service.call(get("/")));
    }
    for reply in futures_util::future::join_all(replies).await {
        statuses.push(reply.unwrap().status());
    }
    let ok = statuses.iter().filter(|status| **status == StatusCode::OK).count();
    assert_eq!(ok, admitted, "{statuses:?}");
    assert_eq!(calls.load(Ordering::SeqCst), admitted);
}

#[tokio::test(start_paused = true)]
async fn the_service_that_was_ready_is_the_one_that_is_called() {
    for (limit, admitted) in [(100, 7), (5, 5)] {
        let quota = Quota::fixed_window(limit, MINUTE);
        drive(limiter([global(quota)]).0, admitted).await;
        drive(limiter([looked_up(quota)]).0, admitted).await;
        drive(limiter([global(quota).tier_by_async(|_| async { "none" })]).0, admitted).await;
        drive(slow(global(quota), millis(3)), admitted).await;
        drive(slow(looked_up(quota), millis(3)), admitted).await;
    }
    // Held back.
    drive(limiter([global(Quota::leaky_bucket(1, secs(1)).capacity(5))]).0, 5).await;
    drive(slow(global(Quota::leaky_bucket(1, secs(1)).capacity(5)), millis(3)), 5).await;
    // Not limited at all.
    drive(limiter([global(Quota::per_minute(1)).on_path("/other")]).0, 7).await;
}

#[tokio::test(start_paused = true)]
async fn the_inner_service_is_not_called_before_it_is_decided() {
    let inner = Strict::default();
    let calls = Arc::clone(&inner.calls);
    let mut service = RateLimitLayer::new(slow(looked_up(Quota::per_minute(1)), millis(50))).layer(inner);
    let mut reply = Box::pin(service.ready().await.unwrap().call(get("/")));
    assert!((&mut reply).now_or_never().is_none());
    tokio::time::advance(millis(49)).await;
    assert!((&mut reply).now_or_never().is_none());
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    assert_eq!(reply.await.unwrap().status(), StatusCode::OK);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    // And not called at all when the request is denied.
    let reply = service.ready().await.unwrap().call(get("/")).await.unwrap();
    assert_eq!(reply.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_service_that_is_not_ready_is_waited_for_and_nothing_is_charged() {
    #[derive(Clone)]
    struct Gated(Arc<AtomicBool>);

    impl Service<Request<()>> for Gated {
        type Response = Reply;
        type Error = Infallible;
        type Future = Ready<Result<Reply, Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            if self.0.load(Ordering::SeqCst) { Poll::Ready(Ok(())) } else { Poll::Pending }
        }

        fn call(&mut self, request: Request<()>) -> Self::Future {
            ready(Ok(ok(request)))
        }
    }

    let (limiter, _) = limiter([global(Quota::per_minute(1))]);
    let gate = Arc::new(AtomicBool::new(false));
    let mut service = RateLimitLayer::new(limiter.clone()).layer(Gated(Arc::clone(&gate)));
    assert!(service.ready().now_or_never().is_none());
    assert!(limiter.charge("r", ()).peek().await.unwrap().is_admitted());
    gate.store(true, Ordering::SeqCst);
    let reply = service.ready().await.unwrap().call(get("/")).await.unwrap();
    assert_eq!(reply.status(), StatusCode::OK);
    assert!(!limiter.charge("r", ()).peek().await.unwrap().is_admitted());
}

#[derive(Debug, PartialEq)]
struct Broken(&'static str);

#[tokio::test]
async fn errors_of_the_inner_service_are_passed_on_as_they_are() {
    #[derive(Clone)]
    struct Unready;

    impl Service<Request<()>> for Unready {
        type Response = Reply;
        type Error = Broken;
        type Future = Ready<Result<Reply, Broken>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Broken>> {
            Poll::Ready(Err(Broken("unready")))
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            panic!("called though it is not ready")
        }
    }

    let layer = RateLimitLayer::new(Quota::per_minute(100));
    assert_eq!(layer.layer(Unready).ready().await.err(), Some(Broken("unready")));
    let broken = service_fn(|_: Request<()>| async { Err::<Reply, _>(Broken("called")) });
    assert_eq!(layer.layer(broken).oneshot(get("/")).await.unwrap_err(), Broken("called"));
    let limiter = limiter([looked_up(Quota::per_minute(100))]).0;
    let later = RateLimitLayer::new(limiter).layer(broken);
    assert_eq!(later.oneshot(get("/")).await.unwrap_err(), Broken("called"));
}

#[tokio::test]
async fn a_denial_is_a_response_and_no_error() {
    let service = RateLimitLayer::new(Quota::per_minute(1)).layer(Strict::default());
    for status in [200, 429, 429] {
        let reply: Result<Reply, Infallible> = service.clone().oneshot(get("/")).await;
        assert_eq!(reply.unwrap().status().as_u16(), status);
    }
}

#[tokio::test]
async fn clones_and_services_of_one_layer_share_their_budget() {
    let layer = RateLimitLayer::new(limiter([global(Quota::per_minute(3))]).0);
    let (a, b) = (layer.layer(Strict::default()), layer.clone().layer(Strict::default()));
    let mut statuses = Vec::new();
    for service in [a.clone(), b.clone(), a, b] {
        statuses.push(service.oneshot(get("/")).await.unwrap().status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 429]);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_denied_later_frees_the_place_that_it_had_within() {
    let inner = ConcurrencyLimit::new(service_fn(|request| async { Ok::<_, Infallible>(ok(request)) }), 1);
    let mut service = RateLimitLayer::new(slow(global(Quota::per_minute(1)), millis(3))).layer(inner);
    for status in [200, 429, 429] {
        let reply = service.ready().await.unwrap().call(get("/"));
        // The place is taken while the request is being decided.
        assert!(service.clone().ready().now_or_never().is_none());
        assert_eq!(reply.await.unwrap().status().as_u16(), status);
        assert!(service.clone().ready().now_or_never().is_some());
    }
}

#[tokio::test]
async fn the_inner_service_can_be_reached() {
    let seen = Arc::new(Mutex::new(0));
    let mut service = RateLimitLayer::new(Quota::per_minute(1)).layer(Arc::clone(&seen));
    *service.get_ref().lock().unwrap() += 1;
    assert!(Arc::ptr_eq(service.get_mut(), &seen));
    assert_eq!(*service.into_inner().lock().unwrap(), 1);
}

#[tokio::test]
async fn a_response_that_is_given_up_while_it_is_decided_does_no_harm() {
    let inner = Strict::default();
    let calls = Arc::clone(&inner.calls);
    let mut service = RateLimitLayer::new(slow(looked_up(Quota::per_minute(5)), secs(60))).layer(inner);
    for _ in 0..3 {
        let reply = service.ready().await.unwrap().call(get("/"));
        assert!(reply.now_or_never().is_none());
    }
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}
