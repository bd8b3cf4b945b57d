//! Connections that are closed while idle.
//!
//! Nothing was sent, so nothing is lost: the next request waits for a new connection, for as long as it would
//! have waited for an answer.

use std::time::Duration;

use ratekeeper_core::{Refund, Store, StoreErrorKind};
use ratekeeper_redis::RedisStore;
use ratekeeper_servers::{Mode, Proxy, RedisServer, wait};

use super::tally::Caller;
use super::{DEADLINE, hasty, opened, ready, server, watched};
use crate::support::PATIENCE;

/// A store with enough time to connect on a busy machine.
async fn patient(url: &str) -> RedisStore {
    let store = hasty(url).timeout(PATIENCE).build().expect("the store can be made");
    store.ready(PATIENCE).await.expect("the server works");
    store
}

/// Closes all connections except the one that asks for it.
fn close_all(server: &RedisServer) {
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]).expect("it obeys");
    // Redis closes them after it has answered, and before it reads another command.
    server.command(&["PING"]).expect("it answers");
}

/// Lets this thread's runtime see what has arrived, and all tasks react to it.
async fn look_around(port: u16) {
    tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("somebody listens");
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn whoever_comes_next_does_not_notice() {
    let server = server();
    let store = patient(&server.url()).await;
    let breaker = watched(&store);
    let caller = Caller::new("next");
    for round in 1..=5 {
        close_all(&server);
        look_around(server.port()).await;
        let tally = caller.tally_many(&store, 16).await;
        assert_eq!(tally.admitted, 16, "{tally:?}");
        assert_eq!(caller.counted(&store).await, 16 * round);
    }
    assert!(!breaker.has_changed().expect("the store is there"), "{:?}", store.breaker());
}

#[tokio::test]
async fn a_server_that_was_restarted_meanwhile_costs_nobody_an_answer() {
    let server = server();
    let store = patient(&server.url()).await;
    let caller = Caller::new("next");
    assert_eq!(caller.tally_many(&store, 2).await.admitted, 2);
    server.kill().expect("it can be killed");
    server.restart().expect("it can be restarted");
    look_around(server.port()).await;
    let tally = caller.tally_many(&store, 1).await;
    assert_eq!(tally.admitted, 1, "{tally:?}");
    assert_eq!(caller.counted(&store).await, 1, "it was restarted empty");
}

#[tokio::test]
async fn what_is_to_be_given_back_is_not_lost() {
    let server = server();
    let store = patient(&server.url()).await;
    let caller = Caller::new("giver");
    assert_eq!(caller.tally_many(&store, 3).await.admitted, 3);
    close_all(&server);
    look_around(server.port()).await;
    let refund = Refund::new(caller.charge_of().rule, caller.charge_of().key, 2);
    store.refund(&[refund]).await.expect("the server works");
    assert_eq!(caller.counted(&store).await, 1);
}

#[tokio::test]
async fn a_server_that_is_gone_is_found_out_by_who_comes_next() {
    let server = server();
    let store = ready(&server.url()).await;
    let neighbour = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    server.kill().expect("it can be killed");
    look_around(neighbour.local_addr().expect("it has one").port()).await;
    let tally = Caller::new("next").tally_many(&store, 8).await;
    tally.assert_orderly();
    assert_eq!(tally.unavailable, 8, "{tally:?}");
    assert_eq!(opened(&store).await.kind(), StoreErrorKind::Unavailable);
}

/// A new connection may take longer than any request can wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_a_new_connection_for_longer_than_for_an_answer() {
    let server = server();
    let proxy = Proxy::start(server.port()).expect("a proxy");
    let store = hasty(&server.url_with_port(proxy.port())).connect_timeout(PATIENCE);
    let store = store.build().expect("the store can be made");
    store.ready(PATIENCE).await.expect("the server works");
    proxy.set(Mode::BlackHole).expect("it obeys");
    proxy.drop_connections().expect("it obeys");
    let tally = Caller::new("next").tally_many(&store, 8).await;
    tally.assert_orderly();
    assert_eq!(tally.failed(), 8, "{tally:?}");
    opened(&store).await;
    // Nor do requests that arrive then.
    let tally = Caller::new("next").tally_many(&store, 8).await;
    assert!(tally.failed() == 8 && tally.longest < DEADLINE, "{tally:?}");
    proxy.set(Mode::Pass).expect("it obeys");
    proxy.drop_connections().expect("it obeys");
    store.ready(PATIENCE).await.expect("it is back");
    Caller::new("last").be_admitted(&store).await;
}

/// Also without any request, a new connection is made before the next one arrives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_one_is_made_also_if_nobody_comes() {
    let server = server();
    let proxy = Proxy::start(server.port()).expect("a proxy");
    let store = patient(&server.url_with_port(proxy.port())).await;
    let breaker = watched(&store);
    let before = proxy.counts().connections;
    proxy.drop_connections().expect("it obeys");
    let longest = Duration::from_secs(10).max(PATIENCE);
    wait::until("another connection", longest, || match proxy.counts() {
        counts if counts.connections > before && counts.open == 1 => Ok(()),
        counts => Err(format!("{counts:?}")),
    })
    .expect("it is made");
    assert_eq!(Caller::new("first").tally_many(&store, 1).await.admitted, 1);
    assert!(!breaker.has_changed().expect("the store is there"), "{:?}", store.breaker());
}

/// Without any request, so that the next one finds a connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_while_idle_is_noticed_and_reaches_no_request() {
    let server = server();
    let store = ready(&server.url()).await;
    let caller = Caller::new("idle");
    for round in 0..20 {
        server.kill().expect("it can be killed");
        // Long before the server would be asked whether it is there.
        tokio::time::timeout(Duration::from_secs(2), opened(&store)).await.expect("it is noticed");
        server.restart().expect("it can be restarted");
        store.ready(PATIENCE).await.expect("it works again");
        let tally = caller.tally_many(&store, 8).await;
        assert_eq!(tally.admitted, 8, "{round}: {tally:?}");
    }
}
