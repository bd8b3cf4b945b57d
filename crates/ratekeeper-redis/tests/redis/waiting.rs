//! Waiting for a budget in Redis.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::join_all;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use ratekeeper::{Limiter, LimiterError, MINUTE, Quota, RateLimitLayer, Rule, key};
use tower::{Layer, ServiceExt, service_fn};

use crate::support::{PATIENCE, calls, own_server, patient, ready};

async fn limiter(rule: Rule) -> (Limiter, ratekeeper_servers::RedisServer) {
    let server = own_server();
    let store = ready(patient(&server)).await;
    (Limiter::builder().store(store).rule(rule).build().unwrap(), server)
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_ready_one_after_the_other_in_the_order_in_which_they_came() {
    for quota in [
        Quota::token_bucket(50, Duration::from_secs(1)).burst(1),
        Quota::leaky_bucket(50, Duration::from_secs(1)),
    ] {
        let (limiter, _server) = limiter(Rule::new("jobs", quota)).await;
        let order = Arc::new(Mutex::new(Vec::new()));
        let started = Instant::now();
        let mut tasks = Vec::new();
        for number in 0..10 {
            let (limiter, order) = (limiter.clone(), Arc::clone(&order));
            let mut job = Box::pin(async move {
                assert!(limiter.charge("jobs", "worker").until_ready().await.unwrap().is_admitted());
                order.lock().unwrap().push(number);
            });
            // Asked in this order, and awaited in any. On a busy machine, one may have been answered by then.
            if (&mut job).now_or_never().is_none() {
                tasks.push(tokio::spawn(job));
            }
        }
        for task in join_all(tasks).await {
            task.unwrap();
        }
        assert!(started.elapsed() >= Duration::from_millis(9 * 20), "{quota}: {:?}", started.elapsed());
        let order = order.lock().unwrap().clone();
        assert_eq!(order.len(), 10);
        if quota.max() > 1 {
            assert_eq!(order, (0..10).collect::<Vec<_>>(), "{quota}");
        }
        assert_eq!(limiter.waiting(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_over_the_limit_are_held_back_and_all_of_them_served() {
    let quota = Quota::token_bucket(100, Duration::from_secs(1)).burst(2);
    let (limiter, _server) = limiter(Rule::new("api", quota).key(key::global()).hold_up_to(MINUTE)).await;
    let inner =
        service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) });
    let service = RateLimitLayer::new(limiter.clone()).layer(inner);
    let started = Instant::now();
    let sent = (0..30).map(|_| tokio::spawn(service.clone().oneshot(Request::new(()))));
    for reply in join_all(sent).await {
        assert_eq!(reply.unwrap().unwrap().status(), StatusCode::OK);
    }
    assert!(started.elapsed() >= Duration::from_millis(28 * 10), "{:?}", started.elapsed());
    assert_eq!(limiter.waiting(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_that_wait_share_what_there_is() {
    let server = own_server();
    let quota = Quota::sliding_log(5, Duration::from_millis(500));
    let mut jobs = Vec::new();
    for _ in 0..2 {
        let store = ready(patient(&server)).await;
        let limiter = Limiter::builder().store(store).rule(Rule::new("jobs", quota)).build().unwrap();
        jobs.extend((0..10).map(|_| {
            let limiter = limiter.clone();
            tokio::spawn(async move {
                let decision = limiter.charge("jobs", "shared").until_ready().await.unwrap();
                assert!(decision.is_admitted());
                decision.at()
            })
        }));
    }
    let mut admitted = Vec::new();
    for job in join_all(jobs).await {
        admitted.push(job.unwrap());
    }
    admitted.sort();
    // Never more than five in any half a second, by the server's clock.
    for six in admitted.windows(6) {
        assert!(six[5] >= six[0].saturating_add(quota.period()), "{admitted:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_when_redis_goes_away_is_told() {
    let (limiter, server) =
        limiter(Rule::new("jobs", Quota::token_bucket(1, Duration::from_millis(200)))).await;
    assert!(limiter.charge("jobs", "worker").until_ready().await.unwrap().is_admitted());
    drop(server);
    let waited = tokio::time::timeout(2 * PATIENCE, limiter.charge("jobs", "worker").until_ready()).await;
    assert!(matches!(waited, Ok(Err(LimiterError::Store(_)))), "{waited:?}");
    assert_eq!(limiter.waiting(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_goes_away_while_redis_is_asked_has_paid_nothing() {
    for quota in [Quota::token_bucket(1_000, 10 * MINUTE), Quota::sliding_log(1_000, 10 * MINUTE)] {
        let (limiter, _server) = limiter(Rule::new("jobs", quota)).await;
        for n in 0..300 {
            let waiting = tokio::spawn(limiter.charge("jobs", "worker").cost(2).until_ready());
            // Before it was sent, while it is under way, or when the answer has already arrived.
            for _ in 0..8 * n {
                tokio::task::yield_now().await;
            }
            waiting.abort();
            if waiting.await.is_ok() {
                limiter.refund("jobs", "worker", 2).await.unwrap();
            }
        }
        let deadline = Instant::now() + 2 * PATIENCE;
        loop {
            let peeked = limiter.charge("jobs", "worker").peek().await.unwrap();
            let left = peeked.outcome("jobs").unwrap().remaining();
            if left == 1_000 {
                break;
            }
            assert!(Instant::now() < deadline, "{quota}: {left} are left");
            tokio::task::yield_now().await;
        }
        assert_eq!(limiter.waiting(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_on_a_line_asks_redis_only_now_and_then() {
    let rule = Rule::new("api", Quota::token_bucket(1, MINUTE)).key(key::global()).hold_up_to(2 * MINUTE);
    let (limiter, server) = limiter(rule).await;
    let inner =
        service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) });
    let service = RateLimitLayer::new(limiter.clone()).layer(inner);
    // One passes, two wait in line, and all others would have to wait for longer than is allowed.
    service.clone().oneshot(Request::new(())).await.unwrap();
    let mut waiting = Vec::new();
    for number in 1..=2 {
        waiting.push(tokio::spawn(service.clone().oneshot(Request::new(()))));
        let deadline = Instant::now() + PATIENCE;
        while limiter.waiting() < number {
            assert!(Instant::now() < deadline, "{number} do not wait");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let (before, started) = (calls(&server, "evalsha").unwrap(), Instant::now());
    for _ in 0..500 {
        let reply = service.clone().oneshot(Request::new(())).await.unwrap();
        assert_eq!(reply.status(), StatusCode::TOO_MANY_REQUESTS);
    }
    // An answer from Redis is trusted for a second.
    let asked = calls(&server, "evalsha").unwrap() - before;
    let seconds = started.elapsed().as_secs() as u32;
    assert!(asked <= 2 * (seconds + 1), "Redis was asked {asked} times in {seconds} s");
}
