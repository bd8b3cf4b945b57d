//! Servers that are killed, restarted and stopped.

use std::time::{Duration, Instant};

use ratekeeper_core::StoreErrorKind;
use ratekeeper_servers::{Proxy, wait};

use super::load::{Load, counted};
use super::tally::Caller;
use super::{DEADLINE, hasty, opened, ready, server};
use crate::support::{PATIENCE, calls};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_and_restarted_empty() {
    let server = server();
    let store = ready(&server.url()).await;
    let load = Load::start(&store, 16);
    load.served(100).await;
    server.kill().expect("it can be killed");
    assert_eq!(opened(&store).await.kind(), StoreErrorKind::Unavailable);
    load.failing(100).await;
    let start = Instant::now();
    let error = Caller::new("late").charge(&store).await.expect_err("there is no server");
    assert!(start.elapsed() < DEADLINE / 2, "it fails at once");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);

    server.restart().expect("it can be restarted");
    load.served(100).await;
    let (tally, callers) = load.stop().await;
    tally.assert_orderly();
    assert_eq!(tally.protocol, 0, "{tally:?}");
    assert!(counted(&store, &callers).await <= tally.admitted);
    // It is exact again.
    let exact = Caller::new("exact").with_only(3);
    assert_eq!(exact.tally_many(&store, 10).await.admitted, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn charges_that_timed_out_are_not_made_when_it_wakes_up() {
    let server = server();
    let store = ready(&server.url()).await;
    let caller = Caller::new("sleeper");
    assert_eq!(caller.tally_many(&store, 3).await.admitted, 3);
    let scripts = || calls(&server, "evalsha").expect("the server tells");
    let before = scripts();

    server.pause().expect("it can be stopped");
    let asked = Instant::now();
    let tally = caller.tally_many(&store, 500).await;
    tally.assert_orderly();
    assert_eq!(tally.timeout, 500, "{tally:?}");
    assert!(asked.elapsed() >= DEADLINE);
    assert!(opened(&store).await.is_timeout());
    // Requests that arrive now do not wait.
    let tally = caller.tally_many(&store, 500).await;
    assert!(tally.failed() == 500 && tally.longest < DEADLINE, "{tally:?}");

    server.resume().expect("it goes on");
    store.ready(PATIENCE).await.expect("it is back");
    assert_eq!(caller.counted(&store).await, 3);
    // Two goes, the peek, and the probes.
    assert!(scripts() - before <= 8, "{} scripts were run", scripts() - before);
    assert_eq!(caller.tally_many(&store, 2).await.admitted, 2);
    assert_eq!(caller.counted(&store).await, 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_and_one_that_asks_again_immediately_are_failed_in_time() {
    for callers in [64, 1] {
        let server = server();
        let store = hasty(&server.url()).build().expect("a good store");
        store.ready(PATIENCE).await.expect("the server works");
        let load = if callers == 1 { Load::eager(&store, 1) } else { Load::start(&store, callers) };
        load.served(1_000).await;
        server.pause().expect("it can be stopped");
        assert!(opened(&store).await.is_timeout());
        load.failing(500).await;
        server.resume().expect("it goes on");
        load.served(1_000).await;
        let (tally, _) = load.stop().await;
        tally.assert_orderly();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_again_and_again_under_load() {
    let server = server();
    let store = ready(&server.url()).await;
    let load = Load::start(&store, 16);
    const STOPS: u32 = 3;
    for _ in 0..STOPS {
        load.served(100).await;
        server.pause().expect("it can be stopped");
        load.failing(50).await;
        server.resume().expect("it goes on");
    }
    load.served(100).await;
    let (tally, callers) = load.stop().await;
    tally.assert_orderly();
    assert_eq!((tally.protocol, tally.unavailable), (0, 0), "{tally:?}");
    // What it was just doing when it was stopped may be counted although the answer came too late.
    let counted = counted(&store, &callers).await;
    assert!(counted >= tally.admitted && counted <= tally.admitted + 16 * STOPS, "{counted}: {tally:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_for_so_long_that_the_connection_is_given_up() {
    let server = server();
    let proxy = Proxy::start(server.port()).expect("a proxy");
    let store = hasty(&server.url_with_port(proxy.port())).timeout(Duration::from_millis(20));
    let store = store.build().expect("the store can be made");
    store.ready(PATIENCE).await.expect("the server works");
    let caller = Caller::new("sleeper");

    server.pause().expect("it can be stopped");
    let tally = caller.tally_many(&store, 100).await;
    tally.assert_orderly();
    assert_eq!(tally.timeout, 100, "{tally:?}");
    let connections = proxy.counts().connections;
    wait::until("another connection", PATIENCE, || match proxy.counts().connections {
        more if more > connections => Ok(()),
        _ => Err("there is none"),
    })
    .expect("it is tried again");
    server.resume().expect("it goes on");
    store.ready(PATIENCE).await.expect("it is back");
    assert_eq!(caller.counted(&store).await, 0);
    wait::until("the old connections' end", PATIENCE, || match proxy.counts().open {
        1 => Ok(()),
        open => Err(format!("{open} are open")),
    })
    .expect("only one is left");
}

/// A server that is gone is noticed, even without any request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_is_gone_while_nobody_asks_is_found_out() {
    let server = server();
    let store = ready(&server.url()).await;
    server.kill().expect("it can be killed");
    assert_eq!(opened(&store).await.kind(), StoreErrorKind::Unavailable);
    server.restart().expect("it can be restarted");
    store.ready(PATIENCE).await.expect("it is back");
    Caller::new("first").be_admitted(&store).await;
}
