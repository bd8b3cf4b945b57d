//! The ways to connect to a server.

use std::time::Duration;

use ratekeeper_core::{Charge, HOUR, Key, MINUTE, Quota, RuleName, Store};
use ratekeeper_redis::{BreakerState, RedisStore, RedisStoreBuilder, Servers, SetupError};
use ratekeeper_servers::{Cluster, RedisServer, Sentinels};

use crate::failure::{Load, counted, story};
use crate::support::{PATIENCE, rule, shared_server};

async fn ready(builder: RedisStoreBuilder) -> RedisStore {
    let store = builder.timeout(PATIENCE).build().expect("the store can be made");
    store.ready(PATIENCE).await.expect("the server works");
    store
}

async fn at(address: impl ratekeeper_redis::IntoClient) -> RedisStore {
    ready(RedisStore::builder(Servers::one(address).expect("an address"))).await
}

/// Charges one of two, and returns whether it fit.
async fn admits(store: &RedisStore, key: &str) -> bool {
    let (rule, key) = (RuleName::new("topology").expect("a name"), Key::from(key));
    let quota = Quota::fixed_window(2, 30 * 24 * 60 * MINUTE);
    store.charge(&[Charge::new(rule, &key, &quota)]).await.expect("it is decided").is_admitted()
}

async fn decides(store: &RedisStore, key: &str) {
    assert!(admits(store, key).await && admits(store, key).await && !admits(store, key).await);
}

fn keys(server: &RedisServer, database: &str) -> Vec<String> {
    let mut connection = server.connect().expect("it is reached");
    redis::cmd("SELECT").arg(database).query::<()>(&mut connection).expect("it obeys");
    let mut keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).expect("it tells");
    keys.retain(|key| !key.contains(" probe"));
    keys
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_with_a_password_and_a_database() {
    let server = RedisServer::builder()
        .password("of the default user")
        .user(
            "rate-keeper",
            "p@ss:w/rd?",
            "~ratekeeper:* +eval +evalsha +time +mget +get +getrange +set +setrange +pexpireat +del +select",
        )
        .start()
        .expect("it starts");
    let store = at(format!("{}3", server.url())).await;
    decides(&store, "alice").await;
    assert_eq!(keys(&server, "3"), ["ratekeeper:topology:{alice}"]);
    // Long logs are changed in place, which takes other commands.
    let log = Quota::sliding_log(1_000, HOUR);
    for _ in 0..100 {
        let charge = Charge::new(rule("log"), "alice", &log);
        assert!(store.charge(&[charge]).await.expect("the store decides").is_admitted());
    }
    assert!(keys(&server, "0").is_empty());
}

/// Its counters may not share a call, so it works for a single request and fails in a crowd.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_a_cluster_is_not_taken_for_a_single_server() {
    let alone =
        tokio::task::block_in_place(|| Cluster::start(1, 0)).unwrap_or_else(|error| panic!("{error}"));
    let several =
        tokio::task::block_in_place(|| Cluster::start(2, 0)).unwrap_or_else(|error| panic!("{error}"));
    for node in [alone.node(0), several.node(0), several.node(1)] {
        let servers = Servers::one(node.url()).expect("an address");
        let store = RedisStore::builder(servers).build().expect("the store can be made");
        let mut states = store.watch_breaker();
        let says_why = |state: &BreakerState| match state {
            BreakerState::Open { error, .. } => story(error).contains("use Servers::cluster"),
            _ => panic!("it was taken for a single server"),
        };
        tokio::time::timeout(PATIENCE, states.wait_for(says_why))
            .await
            .expect("it says why")
            .expect("it runs");
        let error = store.ready(Duration::ZERO).await.expect_err("it is not used");
        assert!(error.is_unavailable(), "{error:?}");
    }
    let cluster = Servers::cluster(alone.urls()).expect("addresses");
    decides(&ready(RedisStore::builder(cluster)).await, "alice").await;
}

/// They are for ever, practically.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_may_be_as_long_as_a_duration_can_be() {
    let cluster =
        tokio::task::block_in_place(|| Cluster::start(2, 0)).unwrap_or_else(|error| panic!("{error}"));
    let one = Servers::one(shared_server().url()).expect("an address");
    for servers in [one, Servers::cluster(cluster.urls()).expect("addresses")] {
        let store = RedisStore::builder(servers).prefix("for-ever").timeout(Duration::MAX);
        let store = store.connect_timeout(Duration::MAX).max_backoff(Duration::MAX);
        let store = store.denial_cache_ttl(Duration::MAX);
        let store = store.build().expect("the store can be made");
        store.ready(PATIENCE).await.expect("it works");
        decides(&store, "alice").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prefixes_keep_stores_apart() {
    let [one, other] = ["fleet-1", "fleet-2"].map(|prefix| {
        let servers = Servers::one(shared_server().url()).expect("an address");
        RedisStore::builder(servers).prefix(prefix)
    });
    let (one, other) = (ready(one).await, ready(other).await);
    decides(&one, "alice").await;
    decides(&other, "alice").await;
    let keys = keys(shared_server(), "0");
    for key in ["fleet-1:topology:{alice}", "fleet-2:topology:{alice}"] {
        assert!(keys.iter().any(|known| known == key), "{key}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unix_socket() {
    let server = RedisServer::builder().unix_socket().password("secret").start().expect("it starts");
    let store = at(server.unix_url().expect("it has a socket")).await;
    decides(&store, "alice").await;
    server.restart().expect("it can be restarted");
    store.ready(PATIENCE).await.expect("it is back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_master_that_sentinels_know() {
    let options = RedisServer::builder().password("secret");
    let sentinels = Sentinels::start_with(options, 1).expect("they start");
    let node = "redis://:secret@ignored";
    let nobody = Servers::sentinel(sentinels.urls(), "nobody", node).expect("addresses");
    let nobody = RedisStore::builder(nobody).build().expect("the store can be made");

    // The first one does not exist.
    let urls = ["redis://127.0.0.1:1/".to_owned()].into_iter().chain(sentinels.urls());
    let servers = Servers::sentinel(urls, Sentinels::NAME, node).expect("addresses");
    let builder = RedisStore::builder(servers).timeout(Duration::from_millis(100));
    let store = builder.max_backoff(Duration::from_millis(100)).build().expect("the store can be made");
    store.ready(PATIENCE).await.expect("they know the master");
    let load = Load::start(&store, 16);
    load.served(100).await;
    sentinels.replication().wait_until_in_sync().expect("the replica follows");
    let former = sentinels.kill_master().expect("it can be killed");
    load.failing(100).await;
    sentinels.wait_for_failover(former).expect("there is another");
    load.served(100).await;
    let (tally, callers) = load.stop().await;
    tally.assert_orderly();
    assert_eq!(tally.protocol, 0, "{tally:?}");
    // What had not reached the replica is lost with the master.
    assert!(counted(&store, &callers).await > 0);

    let error = nobody.ready(Duration::ZERO).await.expect_err("there is no such master");
    assert!(error.is_unavailable(), "{error:?}");
    assert!(matches!(Servers::sentinel([""; 0], "x", node), Err(SetupError::NoServers)));
}
