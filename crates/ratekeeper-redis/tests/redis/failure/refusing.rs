//! Servers that answer, but refuse to work.

use ratekeeper_core::StoreErrorKind;
use ratekeeper_redis::RedisStore;
use ratekeeper_servers::RedisServer;

use super::load::{Load, counted};
use super::tally::Caller;
use super::{DEADLINE, hasty, opened_because, ready, server};
use crate::support::{PATIENCE, shared_server};

/// Makes the server refuse and then work again, under load. What it refuses is not counted.
async fn refusing(server: &RedisServer, refuse: &[&str], word: &str, work: &[&str]) {
    let store = ready(&server.url()).await;
    let used_up = Caller::new("used up").with_only(1);
    assert_eq!(used_up.tally_many(&store, 1).await.admitted, 1);
    let load = Load::start(&store, 16);
    load.served(50).await;
    server.command(refuse).expect("it obeys");
    assert_eq!(opened_because(&store, word).await.kind(), StoreErrorKind::Unavailable);
    load.failing(50).await;
    at_once(&store).await;
    server.command(work).expect("it obeys");
    store.ready(PATIENCE).await.expect("it works again");
    load.served(50).await;
    let (tally, callers) = load.stop().await;
    tally.assert_orderly();
    assert!(tally.unavailable > 0 && tally.protocol == 0, "{tally:?}");
    // Of two goes under way at that moment, one may have been done, and its answer have come too late.
    let counted = counted(&store, &callers).await;
    assert!(counted >= tally.admitted && counted <= tally.admitted + 16, "{counted}: {tally:?}");
    let denied = used_up.charge(&store).await.expect("a denial is no error");
    assert!(!denied.is_admitted());
}

async fn at_once(store: &RedisStore) {
    let tally = Caller::new("at once").tally_many(store, 50).await;
    assert!(tally.failed() == 50 && tally.longest < DEADLINE, "{tally:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_becomes_a_replica_and_a_master_again() {
    // A replica of a server that does not exist, so that it keeps its data.
    refusing(&server(), &["REPLICAOF", "127.0.0.1", "1"], "read only replica", &["REPLICAOF", "NO", "ONE"])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn out_of_memory() {
    let refuse = ["CONFIG", "SET", "maxmemory", "1"];
    refusing(&server(), &refuse, "OOM", &["CONFIG", "SET", "maxmemory", "0"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_few_replicas() {
    let refuse = ["CONFIG", "SET", "min-replicas-to-write", "1"];
    refusing(&server(), &refuse, "NOREPLICAS", &["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permission_is_taken_away_and_given_back() {
    let server = RedisServer::builder().user("ratekeeper", "secret", "~ratekeeper:* +@all");
    let server = server.start().expect("it starts");
    let refuse = ["ACL", "SETUSER", "ratekeeper", "-evalsha"];
    refusing(&server, &refuse, "no permissions", &["ACL", "SETUSER", "ratekeeper", "+evalsha"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_until_it_is_right() {
    let server = RedisServer::builder().user("ratekeeper", "new", "~ratekeeper:* +@all");
    let server = server.start().expect("it starts");
    let url = server.url().replace(":new@", ":old@");
    let store = hasty(&url).build().expect("the store can be made");
    let error = store.ready(DEADLINE).await.expect_err("it is not let in");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    at_once(&store).await;
    server.command(&["ACL", "SETUSER", "ratekeeper", ">old"]).expect("it obeys");
    store.ready(PATIENCE).await.expect("it is let in");
    assert_eq!(Caller::new("exact").with_only(3).tally_many(&store, 10).await.admitted, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_are_not_ours() {
    let server = RedisServer::builder().user("ratekeeper", "secret", "~other:* +@all");
    let server = server.start().expect("it starts");
    let store = hasty(&server.url()).build().expect("the store can be made");
    let error = store.ready(DEADLINE).await.expect_err("it is not let in");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    at_once(&store).await;
    let store = hasty(&server.url()).prefix("other").build().expect("the store can be made");
    store.ready(PATIENCE).await.expect("those are ours");
    assert_eq!(Caller::new("exact").with_only(3).tally_many(&store, 10).await.admitted, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loading() {
    if shared_server().version().expect("it tells").as_redis < (7, 0, 0) {
        // Before that, a server with little to load answers no client until it has finished.
        return;
    }
    let options = RedisServer::builder().config("loading-process-events-interval-bytes 1024");
    let options = options.config("enable-debug-command yes");
    let server = options.start().expect("it starts");
    let store = ready(&server.url()).await;
    let caller = Caller::new("before");
    assert_eq!(caller.tally_many(&store, 5).await.admitted, 5);
    server.command(&["DEBUG", "POPULATE", "1000", "filler", "100"]).expect("it obeys");
    server.command(&["CONFIG", "SET", "key-load-delay", "1000"]).expect("it obeys");
    let load = Load::start(&store, 16);
    load.served(50).await;
    let reloaded = std::thread::scope(|scope| {
        let reloading = scope.spawn(|| server.command(&["DEBUG", "RELOAD"]));
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                opened_because(&store, "loading").await;
                load.failing(50).await;
            });
        });
        reloading.join().expect("no panic")
    });
    reloaded.expect("it has loaded");
    store.ready(PATIENCE).await.expect("it works again");
    load.served(50).await;
    let (tally, _) = load.stop().await;
    tally.assert_orderly();
    assert_eq!(tally.protocol, 0, "{tally:?}");
    assert_eq!(caller.counted(&store).await, 5);
}
