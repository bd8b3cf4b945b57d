//! Clients and stores that go away.

use std::time::{Duration, Instant};

use futures_util::FutureExt;
use ratekeeper_core::{Answer, AnswerFuture, Decision, Store, StoreErrorKind};
use ratekeeper_redis::RedisStore;
use ratekeeper_servers::{Mode, Proxy};

use super::tally::Caller;
use super::{DEADLINE, MARGIN, hasty, opened, ready, server};
use crate::support::PATIENCE;

fn under_way(store: &RedisStore, caller: &Caller) -> AnswerFuture<Decision> {
    match store.charge(&[caller.charge_of()]) {
        charging @ Answer::Later(_) => charging.into_future(),
        Answer::Now(answer) => panic!("answered at once: {answer:?}"),
    }
}

/// Waits until Redis has counted this much.
pub(super) async fn until_counted(store: &RedisStore, caller: &Caller, goal: u32) {
    let reached = async {
        while caller.counted(store).await != goal {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, reached).await.unwrap_or_else(|_| panic!("{goal} were never counted"));
}

/// A client that goes away after its charge was made, and before it receives the answer.
async fn leaves_before_an_answer_that_takes(delay: Duration) {
    let server = server();
    let proxy = Proxy::start(server.port()).expect("a proxy");
    let store = ready(&server.url_with_port(proxy.port())).await;
    let direct = hasty(&server.url()).timeout(PATIENCE).build().expect("the store can be made");
    direct.ready(PATIENCE).await.expect("the server works");
    proxy.set(Mode::Delay { requests: Duration::ZERO, replies: delay }).expect("it obeys");
    let caller = Caller::new("hurried");
    let mut charging = under_way(&store, &caller);
    assert!((&mut charging).now_or_never().is_none());
    until_counted(&direct, &caller, 1).await;
    drop(charging);
    until_counted(&direct, &caller, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_leaves_gets_its_charge_back() {
    leaves_before_an_answer_that_takes(DEADLINE / 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_leaves_gets_its_charge_back_when_the_answer_is_late_too() {
    leaves_before_an_answer_that_takes(4 * DEADLINE).await;
}

/// The answer has arrived, but was never polled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_leaves_with_its_answer_at_hand_gets_its_charge_back() {
    let server = server();
    let store = ready(&server.url()).await;
    let caller = Caller::new("inattentive");
    let charging = under_way(&store, &caller);
    // What is asked later is answered later.
    for _ in 0..3 {
        assert_eq!(caller.counted(&store).await, 1);
    }
    drop(charging);
    until_counted(&store, &caller, 0).await;
    // A charge whose answer was polled is kept.
    let charged = under_way(&store, &caller).await.expect("it is decided");
    assert!(charged.is_admitted());
    for _ in 0..3 {
        assert_eq!(caller.counted(&store).await, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_so_many_wait() {
    let server = server();
    let store = hasty(&server.url()).max_waiting(100).build().expect("the store can be made");
    store.ready(PATIENCE).await.expect("the server works");
    server.pause().expect("it can be stopped");
    let caller = Caller::new("crowd");
    let mut waiting: Vec<_> = (0..1000).map(|_| Box::pin(under_way(&store, &caller))).collect();
    // Requests that find no room are refused now.
    let now = |charging| tokio::task::unconstrained(charging).now_or_never();
    let refused: Vec<_> = waiting.iter_mut().filter_map(now).collect();
    // Some may have been under way before.
    assert!((1000 - 100 - 128..=1000 - 100).contains(&refused.len()), "{}", refused.len());
    for answer in refused {
        assert_eq!(answer.expect_err("there is no room").kind(), StoreErrorKind::Unavailable);
    }
    opened(&store).await;
    drop(waiting);
    server.resume().expect("it goes on");
    store.ready(PATIENCE).await.expect("it is back");
    assert_eq!(caller.counted(&store).await, 0);
}

/// How many tasks exist besides this one.
fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

async fn until_no_tasks() {
    let ended = async {
        while tasks() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.unwrap_or_else(|_| panic!("{} tasks are left", tasks()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_dropped_leaves_no_task() {
    let server = server();
    let store = ready(&server.url()).await;
    let caller = Caller::new("last");
    let last = under_way(&store, &caller);
    drop(store);
    assert!(last.await.expect("it is still answered").is_admitted());
    until_no_tasks().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_dropped_while_redis_is_stopped_leaves_no_task() {
    let server = server();
    let store = hasty(&server.url()).timeout(DEADLINE / 10).connect_timeout(PATIENCE);
    let store = store.build().expect("the store can be made");
    store.ready(PATIENCE).await.expect("the server works");
    server.pause().expect("it can be stopped");
    let last = under_way(&store, &Caller::new("last"));
    drop(store);
    let start = Instant::now();
    assert!(last.await.expect_err("there is no answer").is_timeout());
    assert!(start.elapsed() < DEADLINE + MARGIN);
    until_no_tasks().await;
    // Much less than connecting may take.
    assert!(start.elapsed() < PATIENCE / 2, "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_never_worked_leaves_no_task() {
    let server = server();
    server.pause().expect("it can be stopped");
    let store = hasty(&server.url()).connect_timeout(PATIENCE).build().expect("the store can be made");
    let error = store.ready(DEADLINE).await.expect_err("it does not answer");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    let start = Instant::now();
    drop(store);
    until_no_tasks().await;
    assert!(start.elapsed() < PATIENCE / 2, "{:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_a_runtime_that_has_ended() {
    let server = server();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let url = server.url();
    let store = runtime.spawn(async move {
        let store = hasty(&url).timeout(PATIENCE).build().expect("the store can be made");
        store.ready(PATIENCE).await.expect("the server works");
        store
    });
    let store = store.await.expect("no panic");
    server.pause().expect("it can be stopped");
    let caller = Caller::new("left behind");
    // More than are sent: some are under way, and some wait behind those.
    let waiting: Vec<_> = (0..300).map(|_| under_way(&store, &caller)).collect();
    let start = Instant::now();
    runtime.shutdown_background();
    for answer in futures_util::future::join_all(waiting).await {
        assert_eq!(answer.expect_err("nobody answers").kind(), StoreErrorKind::Unavailable);
    }
    assert!(start.elapsed() < PATIENCE / 2, "{:?}", start.elapsed());
    assert_eq!(opened(&store).await.kind(), StoreErrorKind::Unavailable);
    let tally = caller.tally_many(&store, 10).await;
    assert!(tally.unavailable == 10 && tally.longest < DEADLINE, "{tally:?}");
}
