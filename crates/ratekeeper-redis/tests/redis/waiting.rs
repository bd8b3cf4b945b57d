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

use crate::support::{PATIENCE, calls, own_server, patient, patient_at, ready};

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
async fn a_flood_of_requests_that_cannot_be_held_back_asks_redis_only_now_and_then() {
    let quota = Quota::token_bucket(1, Duration::from_secs(30));
    let rule = Rule::new("api", quota).key(key::global()).hold_up_to(MINUTE);
    let (limiter, server) = limiter(rule).await;
    let inner =
        service_fn(|_: Request<()>| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) });
    let service = RateLimitLayer::new(limiter.clone()).layer(inner);
    // One passes, two wait, and all others would have to wait for longer than is allowed.
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

/// Two nodes with ten times as many requests as a leaky bucket serves, and little patience: the bucket is
/// never idle, because no request takes a place that it does not use.
#[tokio::test(flavor = "multi_thread")]
async fn an_overloaded_queue_is_served_at_its_rate() {
    const RATE: u32 = 300;
    const RUN: Duration = Duration::from_secs(3);
    let quota = Quota::leaky_bucket(RATE, Duration::from_secs(1)).capacity(RATE);
    let mut most = 0.0_f64;
    // On a machine that is busy with something else, requests come late, and that is not the queue's fault.
    for _ in 0..3 {
        let server = own_server();
        let mut nodes = Vec::new();
        for _ in 0..2 {
            let store = ready(patient(&server)).await;
            nodes.push(Limiter::builder().store(store).rule(Rule::new("queue", quota)).build().unwrap());
        }
        let (started, mut sent, mut requests) = (Instant::now(), 0, Vec::new());
        while started.elapsed() < RUN {
            while f64::from(sent) < started.elapsed().as_secs_f64() * f64::from(10 * RATE) {
                let limiter = nodes[sent as usize % 2].clone();
                requests.push(tokio::spawn(async move {
                    limiter.charge("queue", "all").ready_within(Duration::from_millis(60)).await.unwrap()
                }));
                sent += 1;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let served =
            join_all(requests).await.into_iter().filter(|reply| reply.as_ref().unwrap().is_admitted());
        most = most.max(served.count() as f64 / RUN.as_secs_f64() / f64::from(RATE));
        if most >= 0.95 {
            return;
        }
    }
    panic!("{most:.2} of the rate were served");
}

/// The name under which another process runs a worker, and the variable that has the server's address.
const WORKER: &str = "waiting::a_worker_in_a_process_of_its_own";
const ADDRESS: &str = "RATEKEEPER_TEST_WORKER_REDIS";

fn queue() -> Rule {
    Rule::new("jobs", Quota::token_bucket(10, Duration::from_secs(1)).burst(1))
}

/// Waits for a budget for each line that it reads, and says when it is ready.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "another process runs it for `two_processes_are_served_in_the_order_in_which_they_came`"]
async fn a_worker_in_a_process_of_its_own() {
    let address = std::env::var(ADDRESS).expect("the address of the server");
    let store = ready(patient_at(&address)).await;
    let limiter = Limiter::builder().store(store).rule(queue()).build().unwrap();
    println!("worker: up");
    let mut jobs = Vec::new();
    // A thread, because reading from the terminal blocks.
    let (lines, mut read) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || std::io::stdin().lines().try_for_each(|line| lines.send(line.unwrap())));
    while let Some(job) = read.recv().await {
        let limiter = limiter.clone();
        jobs.push(tokio::spawn(async move {
            assert!(limiter.charge("jobs", "shared").until_ready().await.unwrap().is_admitted());
            println!("worker: {job}");
        }));
    }
    for job in jobs {
        job.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_are_served_in_the_order_in_which_they_came() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    let server = own_server();
    let store = ready(patient(&server)).await;
    let limiter = Limiter::builder().store(store).rule(queue()).build().unwrap();
    let (said, heard) = std::sync::mpsc::channel::<String>();
    let mut workers = [(); 2].map(|()| {
        let mut worker = Command::new(std::env::current_exe().unwrap())
            .args([WORKER, "--exact", "--ignored", "--nocapture"])
            .env(ADDRESS, server.url())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the test can be run in another process");
        let (output, said) = (worker.stdout.take().unwrap(), said.clone());
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // The harness writes the name of the test before the first line, without a line break.
                if let Some((_, word)) = line.split_once("worker: ") {
                    let _ = said.send(word.to_owned());
                }
            }
        });
        worker
    });
    let hear = || heard.recv_timeout(PATIENCE).expect("both workers speak");
    assert_eq!([hear(), hear()], ["up", "up"]);
    // Each job is in line before the next one comes, as the store sees it.
    let mut taken = Duration::ZERO;
    for job in 0..8_usize {
        writeln!(workers[job % 2].stdin.as_mut().unwrap(), "{job}").unwrap();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let looked = limiter.charge("jobs", "shared").peek().await.unwrap();
            let reset = looked.outcome("jobs").unwrap().reset_after();
            if reset > taken {
                taken = reset;
                break;
            }
            taken = reset;
            assert!(Instant::now() < deadline, "job {job} does not wait");
        }
    }
    let order: Vec<_> = (0..8).map(|_| hear()).collect();
    assert_eq!(order, (0..8).map(|job| job.to_string()).collect::<Vec<_>>());
    for mut worker in workers {
        drop(worker.stdin.take());
        assert!(worker.wait().unwrap().success());
    }
}
