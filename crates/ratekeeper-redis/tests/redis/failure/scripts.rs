//! Servers that lose their scripts, or all their data.

use super::load::{Load, counted};
use super::tally::Caller;
use super::{ready, server, watched};
use crate::support::{PATIENCE, calls, patient};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_are_gone_are_sent_a_few_times_at_most() {
    let server = server();
    let store = patient(&server).build().expect("the store can be made");
    store.ready(PATIENCE).await.expect("the server works");
    let caller = Caller::new("crowd");
    for round in 1..=5 {
        let before = calls(&server, "eval").expect("the server tells");
        server.command(&["SCRIPT", "FLUSH"]).expect("it obeys");
        let tally = caller.tally_many(&store, 512).await;
        assert_eq!(tally.admitted, 512, "{tally:?}");
        let bodies = calls(&server, "eval").expect("the server tells") - before;
        // One for each of the batches that were in flight.
        assert!((1..=2).contains(&bodies), "{bodies} bodies");
        assert_eq!(caller.counted(&store).await, 512 * round);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_sees_that_scripts_are_gone() {
    let server = server();
    let store = patient(&server).build().expect("the store can be made");
    store.ready(PATIENCE).await.expect("the server works");
    let load = Load::start(&store, 32);
    for _ in 0..20 {
        load.served(50).await;
        server.command(&["SCRIPT", "FLUSH"]).expect("it obeys");
    }
    load.served(50).await;
    let (tally, callers) = load.stop().await;
    assert_eq!((tally.failed(), tally.denied), (0, 0), "{tally:?}");
    assert_eq!(counted(&store, &callers).await, tally.admitted);
    assert!(!store.breaker().is_open());
}

/// A request that finds no script is sent again with it, and answered in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_that_go_while_idle_reach_no_request() {
    let server = server();
    let store = ready(&server.url()).await;
    let caller = Caller::new("idle");
    let breaker = watched(&store);
    for round in 0..40 {
        server.command(&["SCRIPT", "FLUSH"]).expect("it obeys");
        let tally = caller.tally_many(&store, 4).await;
        assert_eq!(tally.admitted, 4, "{round}: {tally:?}");
    }
    assert!(!breaker.has_changed().expect("the store is there"), "{:?}", store.breaker());
    assert_eq!(calls(&server, "script"), Some(40), "none is loaded in advance");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refunds_and_resets_come_through_without_scripts_too() {
    use ratekeeper_core::{Refund, Store};
    let server = server();
    let store = patient(&server).build().expect("the store can be made");
    store.ready(PATIENCE).await.expect("the server works");
    let caller = Caller::new("refunded");
    assert_eq!(caller.tally_many(&store, 5).await.admitted, 5);
    let charge = caller.charge_of();
    server.command(&["SCRIPT", "FLUSH"]).expect("it obeys");
    store.refund(&[Refund::new(charge.rule, charge.key, 2)]).await.expect("it is given back");
    assert_eq!(caller.counted(&store).await, 3);
    server.command(&["SCRIPT", "FLUSH"]).expect("it obeys");
    store.reset(charge.rule, charge.key).await.expect("it is forgotten");
    assert_eq!(caller.counted(&store).await, 0);
}

/// The error that reports it comes late: the request is gone by then, so no request is left whose answer
/// would show that the server works again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_returns_when_it_is_late_and_its_scripts_are_gone() {
    let server = server();
    let store = ready(&server.url()).await;
    let caller = Caller::new("late");
    server.command(&["SCRIPT", "FLUSH"]).expect("it obeys");
    server.command(&["CLIENT", "PAUSE", "500"]).expect("it obeys");
    let tally = caller.tally_many(&store, 1).await;
    assert_eq!(tally.timeout, 1, "{tally:?}");
    assert!(store.breaker().is_open());
    store.ready(PATIENCE).await.expect("it works again");
    caller.be_admitted(&store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_forgotten_under_load() {
    let server = server();
    let store = ready(&server.url()).await;
    let load = Load::start(&store, 16);
    for _ in 0..10 {
        load.served(50).await;
        server.command(&["FLUSHALL"]).expect("it obeys");
    }
    load.served(50).await;
    let (tally, callers) = load.stop().await;
    assert_eq!((tally.unavailable, tally.protocol, tally.denied), (0, 0, 0), "{tally:?}");
    assert!(counted(&store, &callers).await <= tally.admitted);
}
