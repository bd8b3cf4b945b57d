//! Slow servers.

use std::time::Duration;

use ratekeeper_redis::RedisStore;
use ratekeeper_servers::{Mode, Proxy, RedisServer, wait};

use super::load::{Load, counted};
use super::tally::Caller;
use super::{DEADLINE, MARGIN, hasty, opened, opened_because, ready, server};
use crate::support::{PATIENCE, shared_server};

/// Makes the server do something that takes longer than the deadline, under load.
async fn busy_with(server: &RedisServer, command: &'static [&'static str]) {
    let store = ready(&server.url()).await;
    let load = Load::start(&store, 16);
    load.served(50).await;
    let mut connection = server.connect().expect("it is reached");
    let busy = tokio::task::spawn_blocking(move || {
        redis::cmd(command[0]).arg(&command[1..]).query::<redis::Value>(&mut connection)
    });
    assert!(opened(&store).await.is_timeout());
    load.failing(50).await;
    busy.await.expect("no panic").expect("it obeys");
    store.ready(PATIENCE).await.expect("it works again");
    load.served(50).await;
    let (tally, callers) = load.stop().await;
    tally.assert_orderly();
    assert_eq!((tally.protocol, tally.unavailable), (0, 0), "{tally:?}");
    assert!(tally.timeout >= 16, "{tally:?}");
    // What it was just doing may be counted although the answer came too late.
    let counted = counted(&store, &callers).await;
    assert!(counted >= tally.admitted && counted <= tally.admitted + 16, "{counted}: {tally:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_sleeps() {
    let mut options = RedisServer::builder();
    if shared_server().version().expect("it tells").as_redis >= (7, 0, 0) {
        options = options.config("enable-debug-command yes");
    }
    busy_with(&options.start().expect("it starts"), &["DEBUG", "SLEEP", "1"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_puts_its_clients_off() {
    // It answers the command immediately, and so is still pausing afterwards.
    busy_with(&server(), &["CLIENT", "PAUSE", "1000"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_runs_the_script_of_somebody_else() {
    let server = RedisServer::builder().config("lua-time-limit 300").start().expect("it starts");
    let store = ready(&server.url()).await;
    let load = Load::start(&store, 16);
    load.served(50).await;
    let mut connection = server.connect().expect("it is reached");
    let script = tokio::task::spawn_blocking(move || {
        redis::cmd("EVAL").arg("while true do end").arg(0).query::<redis::Value>(&mut connection)
    });
    // First it does not answer at all, and then it answers that it is busy.
    assert!(opened(&store).await.is_timeout());
    assert!(opened_because(&store, "busy").await.is_unavailable());
    load.failing(50).await;
    server.command(&["SCRIPT", "KILL"]).expect("it obeys");
    script.await.expect("no panic").expect_err("it was killed");
    store.ready(PATIENCE).await.expect("it works again");
    load.served(50).await;
    let (tally, callers) = load.stop().await;
    tally.assert_orderly();
    assert_eq!(tally.protocol, 0, "{tally:?}");
    let counted = counted(&store, &callers).await;
    assert!(counted >= tally.admitted && counted <= tally.admitted + 16, "{counted}: {tally:?}");
}

async fn through(proxy: &Proxy, server: &RedisServer) -> RedisStore {
    ready(&server.url_with_port(proxy.port())).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slower_than_the_deadline_is_as_good_as_gone() {
    let server = server();
    let proxy = Proxy::start(server.port()).expect("a proxy");
    let store = through(&proxy, &server).await;
    let caller = Caller::new("far away");
    assert_eq!(caller.tally_many(&store, 3).await.admitted, 3);
    proxy.set(Mode::delay(DEADLINE)).expect("it obeys");
    let tally = caller.tally_many(&store, 100).await;
    tally.assert_orderly();
    assert_eq!(tally.timeout, 100, "{tally:?}");
    assert!(opened(&store).await.is_timeout());
    // Answers do arrive. But as long as they are late, no request waits for them.
    let mut states = store.watch_breaker();
    states.mark_unchanged();
    let closes = states.wait_for(|state| !state.is_open());
    tokio::time::timeout(10 * DEADLINE, closes).await.expect_err("it does not close");
    let tally = caller.tally_many(&store, 100).await;
    assert!(tally.timeout == 100 && tally.longest < DEADLINE, "{tally:?}");
    proxy.set(Mode::Pass).expect("it obeys");
    store.ready(PATIENCE).await.expect("it is fast again");
    assert_eq!(caller.counted(&store).await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_way_is_no_trouble() {
    let server = server();
    let proxy = Proxy::start(server.port()).expect("a proxy");
    proxy.set(Mode::delay(Duration::from_millis(40))).expect("it obeys");
    let store = hasty(&server.url_with_port(proxy.port())).timeout(10 * DEADLINE);
    let store = store.build().expect("the store can be made");
    store.ready(PATIENCE).await.expect("the server works");
    let caller = Caller::new("far away").with_only(60);
    let tally = caller.tally_many(&store, 100).await;
    assert_eq!((tally.admitted, tally.denied), (60, 40), "{tally:?}");
}

/// No request waits for others to join it for longer than there is time, not even after a crowd, nor for the
/// answers to those that are under way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_while_an_answer_takes_long_is_sent_all_the_same() {
    let server = server();
    let proxy = Proxy::start(server.port()).expect("a proxy");
    // Long enough that it does not matter how busy the machine is.
    let store = hasty(&server.url_with_port(proxy.port())).timeout(40 * DEADLINE);
    let store = store.build().expect("the store can be made");
    store.ready(PATIENCE).await.expect("the server works");
    let caller = Caller::new("far away");
    assert_eq!(caller.tally_many(&store, 200).await.admitted, 200);
    server.pause().expect("it can be stopped");
    let mut asked = Vec::new();
    for _ in 0..8 {
        let before = proxy.counts().request_bytes;
        asked.push(tokio::spawn({
            let (caller, store) = (caller.clone(), store.clone());
            async move { caller.tally_many(&store, 1).await }
        }));
        // The first has no answer yet, and the others do not wait for it.
        let sent = || match proxy.counts().request_bytes > before {
            true => Ok(()),
            false => Err("it is not sent"),
        };
        tokio::task::block_in_place(|| wait::until("the next to be sent", 20 * DEADLINE, sent))
            .expect("it goes by itself");
    }
    server.resume().expect("it goes on");
    for one in asked {
        let tally = one.await.expect("no panic");
        assert_eq!(tally.admitted, 1, "{tally:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_it_can_do_does_not_keep_it_from_doing_what_it_can() {
    let server = server();
    let proxy = Proxy::start(server.port()).expect("a proxy");
    let store = hasty(&server.url_with_port(proxy.port())).timeout(3 * DEADLINE);
    let store = store.build().expect("the store can be made");
    store.ready(PATIENCE).await.expect("the server works");
    // Two goes of 256 within 140 ms: 1,600 would take 440 ms.
    proxy.set(Mode::delay(Duration::from_millis(70))).expect("it obeys");
    let load = Load::start(&store, 1_600);
    tokio::time::sleep(20 * DEADLINE).await;
    let (tally, callers) = load.stop().await;
    assert!(tally.longest < 3 * DEADLINE + MARGIN && tally.denied == 0, "{tally:?}");
    assert!(tally.timeout > 1_600, "it is too much: {tally:?}");
    // If requests that have waited for too long spoil it for the others, only a few hundred are admitted.
    assert!(tally.admitted > 2_500, "of 7,300: {tally:?}");
    proxy.set(Mode::Pass).expect("it obeys");
    store.ready(PATIENCE).await.expect("it is fast again");
    let counted = counted(&store, &callers).await;
    assert!(counted >= tally.admitted, "{counted}: {tally:?}");
}
