//! Invalid answers.

use std::time::Duration;

use ratekeeper_redis::RedisStore;
use ratekeeper_servers::{Mode, Proxy, RedisServer};

use super::client::until_counted;
use super::tally::{Caller, Tally};
use super::{DEADLINE, changed, hasty, server, watched};
use crate::support::{PATIENCE, patient};

/// A deadline after which it is soon noticed that nothing more arrives.
const SHORT: Duration = Duration::from_millis(20);

async fn setup(deadline: Duration) -> (RedisServer, Proxy, RedisStore) {
    let server = server();
    let proxy = Proxy::start(server.port()).expect("a proxy");
    let store = hasty(&server.url_with_port(proxy.port())).timeout(deadline);
    let store = store.connect_timeout(Duration::from_millis(500)).build().expect("the store can be made");
    store.ready(PATIENCE).await.expect("the server works");
    (server, proxy, store)
}

/// Charges while the answer is replaced by something else; everything works afterwards.
async fn answered_with(proxy: &Proxy, store: &RedisStore, mode: Mode) -> Tally {
    store.ready(PATIENCE).await.expect("it works");
    let breaker = watched(store);
    proxy.set(mode).expect("it obeys");
    let tally = Caller::new("garbage").tally_many(store, 1).await;
    tally.assert_orderly();
    if tally.admitted == 0 {
        changed(breaker).await;
    }
    proxy.set(Mode::Pass).expect("it obeys");
    store.ready(PATIENCE).await.expect("it is back");
    tally
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn something_else_than_the_answer() {
    let (_server, proxy, store) = setup(DEADLINE).await;
    let cases: [&[u8]; 14] = [
        b"+OK\r\n",
        b":1\r\n",
        b"$-1\r\n",
        b"*0\r\n",
        b"*1\r\n$1\r\nx\r\n",
        b"$0\r\n\r\n",
        b"$3\r\nabc\r\n",
        // A time and nothing else; then a time with groups and counters that were not asked for.
        b"$8\r\n\x00\x00\x00\x00\x00\x00\xf8\x42\r\n",
        b"$9\r\n\x00\x00\x00\x00\x00\x00\xf8\x42\x00\r\n",
        b"$10\r\n\x00\x00\x00\x00\x00\x00\xf8\x42\x00\x01\r\n",
        b"$14\r\n\x00\x00\x00\x00\x00\x00\xf8\x42\x00\x01\xff\xff\xff\xff\r\n",
        // Two replies instead of one.
        b"+OK\r\n+OK\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\xff\xfe\r\n",
    ];
    for garbage in cases {
        let tally = answered_with(&proxy, &store, Mode::Replace(garbage.to_vec())).await;
        assert_eq!(tally.protocol, 1, "{:?}: {tally:?}", garbage.escape_ascii().to_string());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_that_nobody_knows() {
    let (_server, proxy, store) = setup(DEADLINE).await;
    for error in ["-ERR something\r\n", "-WEIRD\r\n", "-\r\n", "-MISCONF no disk\r\n", "-MOVED 1 a:1\r\n"] {
        let tally = answered_with(&proxy, &store, Mode::Replace(error.into())).await;
        assert_eq!(tally.unavailable, 1, "{error:?}: {tally:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_missing_or_does_not_end() {
    let (_server, proxy, store) = setup(SHORT).await;
    for garbage in ["", "$1000\r\nabc", "*3\r\n:1\r\n"] {
        let tally = answered_with(&proxy, &store, Mode::Replace(garbage.into())).await;
        assert_eq!(tally.timeout, 1, "{garbage:?}: {tally:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_wrong_while_it_connects() {
    let server = server();
    let proxy = Proxy::start(server.port()).expect("a proxy");
    for byte in (0..160).step_by(4) {
        proxy.set(Mode::Corrupt(vec![byte])).expect("it obeys");
        let store = hasty(&server.url_with_port(proxy.port())).timeout(SHORT);
        let store = store.connect_timeout(2 * SHORT).build().expect("the store can be made");
        // It does not matter whether this was noticed.
        let _ = store.ready(SHORT).await;
        proxy.set(Mode::Pass).expect("it obeys");
        store.ready(PATIENCE).await.unwrap_or_else(|error| panic!("{byte}: {error:?}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_answer_to_another_question() {
    let (server, proxy, store) = setup(PATIENCE).await;
    let direct = patient(&server).build().expect("the store can be made");
    direct.ready(PATIENCE).await.expect("the server works");
    let (first, second) = (Caller::new("first"), Caller::new("second").with_only(1));
    assert_eq!(second.tally_many(&direct, 1).await.admitted, 1);
    proxy.set(Mode::Replace(Vec::new())).expect("it obeys");
    let charging = tokio::spawn({
        let (first, store) = (first.clone(), store.clone());
        async move { first.tally_many(&store, 1).await }
    });
    until_counted(&direct, &first, 1).await;
    // The answer to the first is lost. The answer to the second, a denial, arrives in its place.
    let tally = second.tally_many(&store, 1).await;
    assert_eq!((tally.failed(), tally.denied), (1, 0), "{tally:?}");
    let tally = charging.await.expect("no panic");
    assert_eq!(tally.protocol, 1, "{tally:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_wrong_anywhere() {
    let (_server, proxy, store) = setup(SHORT).await;
    let mut failed = 0;
    for byte in 0..48 {
        let tally = answered_with(&proxy, &store, Mode::Corrupt(vec![byte])).await;
        failed += tally.failed();
    }
    // Not every change can be noticed: one count may become another.
    assert!(failed >= 10, "{failed}");
    assert!(!store.breaker().is_open());
}
