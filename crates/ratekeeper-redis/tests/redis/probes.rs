//! Nodes of a cluster that answer and refuse all writes, whichever slots they have by then.

use std::time::{Duration, Instant};

use ratekeeper_core::{Charge, DAY, Key, Quota, Refund, Store};
use ratekeeper_redis::{BreakerState, RedisStore, Servers};
use ratekeeper_servers::Cluster;

use crate::support::{PATIENCE, calls, key_on, ready, rule};

fn start() -> Cluster {
    Cluster::start(2, 0).unwrap_or_else(|error| panic!("{error}"))
}

async fn store(cluster: &Cluster) -> RedisStore {
    let servers = Servers::cluster(cluster.urls()).expect("the cluster has nodes");
    let store = RedisStore::builder(servers).timeout(Duration::from_secs(2));
    ready(store.max_backoff(Duration::from_millis(10)).denial_cache_ttl(Duration::ZERO)).await
}

const QUOTA: Quota = Quota::fixed_window(1_000, DAY);

async fn admits(store: &RedisStore, key: &Key, cost: u32) -> bool {
    let charge = [Charge::new(rule("probed"), key, &QUOTA).cost(cost)];
    store.charge(&charge).await.expect("the store decides").is_admitted()
}

async fn used(store: &RedisStore, key: &Key) -> u32 {
    let peeked = store.peek(&[Charge::new(rule("probed"), key, &QUOTA)]).await.expect("the store looks");
    1_000 - peeked.outcome("probed").expect("it was asked").remaining()
}

/// The node of this key runs out of memory. It is not used until it has memory again, and a refund is kept
/// until then.
async fn is_left_alone_while_it_refuses(cluster: &Cluster, node: usize, store: &RedisStore, key: &Key) {
    let (node, before) = (cluster.node(node), used(store, key).await);
    let one = [Charge::new(rule("probed"), key, &QUOTA)];
    assert!(before >= 10, "there is something to give back");
    node.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).expect("it obeys");
    node.command(&["CONFIG", "SET", "maxmemory", "1"]).expect("it obeys");
    store.charge(&one).await.expect_err("it has no memory");
    let mut states = store.watch_breaker();
    tokio::time::timeout(PATIENCE, states.wait_for(BreakerState::is_open))
        .await
        .expect("the breaker opens")
        .expect("there is one");
    store.refund(&[Refund::new(rule("probed"), key, 4)]).await.expect_err("it is not done yet");
    // Until it was tried many times.
    let (tried, deadline) = (calls(node, "eval").expect("it counts"), Instant::now() + PATIENCE);
    while calls(node, "eval").expect("it counts") < tried + 20 {
        assert!(Instant::now() < deadline, "it is not tried");
        store.charge(&one).await.expect_err("it has no memory");
        assert!(store.breaker().is_open(), "it has no memory");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    node.command(&["CONFIG", "SET", "maxmemory", "0"]).expect("it obeys");
    store.ready(PATIENCE).await.expect("it works again");
    let made = async {
        while used(store, key).await != before - 4 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, made).await.expect("the refund was kept");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_refuses_is_left_alone_although_its_first_slot_has_moved() {
    let cluster = start();
    let store = store(&cluster).await;
    let key = key_on(&cluster, 0);
    tokio::task::block_in_place(|| cluster.reshard(0..=0, 0, 1)).unwrap_or_else(|error| panic!("{error}"));
    assert!(admits(&store, &key, 10).await);
    is_left_alone_while_it_refuses(&cluster, 0, &store, &key).await;
}

/// It has the slot, but sends requests about new counters, such as that of the probe, to the other node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_refuses_is_left_alone_while_its_first_slot_moves() {
    let cluster = start();
    let store = store(&cluster).await;
    let key = key_on(&cluster, 0);
    cluster.begin_move(0, 0, 1).unwrap_or_else(|error| panic!("{error}"));
    cluster.move_keys(0, 0, 1).unwrap_or_else(|error| panic!("{error}"));
    assert!(admits(&store, &key, 10).await);
    is_left_alone_while_it_refuses(&cluster, 0, &store, &key).await;
}

/// When the store first connects to it, it has no slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_node_that_refuses_is_left_alone() {
    let mut cluster = start();
    let store = store(&cluster).await;
    let key = key_on(&cluster, 0);
    let slot = cluster.slot(&key.to_string()).expect("it has one");
    let new = tokio::task::block_in_place(|| cluster.add_master()).unwrap_or_else(|error| panic!("{error}"));
    cluster.begin_move(slot, 0, new).unwrap_or_else(|error| panic!("{error}"));
    assert!(admits(&store, &key, 10).await, "the new node is asked about the moving slot");
    tokio::task::block_in_place(|| cluster.reshard(slot..=slot, 0, new))
        .unwrap_or_else(|error| panic!("{error}"));
    assert!(admits(&store, &key, 10).await);
    is_left_alone_while_it_refuses(&cluster, new, &store, &key).await;
}
