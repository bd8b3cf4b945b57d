//! Which node serves which slots, when the nodes of a cluster do not all know, or do not all answer.

use std::time::{Duration, Instant};

use ratekeeper_core::{Charge, Key, Quota, Store, StoreError};
use ratekeeper_redis::{RedisStore, RedisStoreBuilder, Servers};
use ratekeeper_servers::{Cluster, RedisServer, wait};

use crate::support::{PATIENCE, calls, key_on, ready, rule};

fn start(masters: usize, replicas: usize) -> Cluster {
    Cluster::start(masters, replicas).unwrap_or_else(|error| panic!("{error}"))
}

fn builder(cluster: &Cluster) -> RedisStoreBuilder {
    RedisStore::builder(Servers::cluster(cluster.urls()).expect("the cluster has nodes"))
}

async fn admits(store: &RedisStore, key: &Key) -> Result<bool, StoreError> {
    let decided = store.charge(&[Charge::new(rule("maps"), key, &Quota::per_day(1_000_000))]).await;
    decided.map(|decision| decision.is_admitted())
}

fn is_master(node: &RedisServer) -> bool {
    match node.command(&["ROLE"]) {
        Ok(redis::Value::Array(role)) => role.first() == Some(&redis::Value::BulkString(b"master".to_vec())),
        _ => false,
    }
}

fn id(node: &RedisServer) -> String {
    match node.command(&["CLUSTER", "MYID"]) {
        Ok(redis::Value::BulkString(id)) => String::from_utf8(id).expect("it is a name"),
        other => panic!("{other:?}"),
    }
}

fn wait_until(what: &str, check: impl Fn() -> bool) {
    let waited = wait::until(what, PATIENCE, || if check() { Ok(()) } else { Err("not yet") });
    waited.unwrap_or_else(|error| panic!("{error}"));
}

/// As in a partition: it keeps reporting the old state, and none of its slots is its own any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_has_lost_sight_of_the_others_is_not_believed() {
    let cluster = start(3, 1);
    let keys: Vec<Key> = (0..3).map(|node| key_on(&cluster, node)).collect();
    let mut stores = Vec::new();
    // Which node a store asks first is random.
    for number in 0..6 {
        let store = builder(&cluster).timeout(Duration::from_secs(1)).prefix(format!("store-{number}"));
        stores.push(ready(store).await);
    }
    tokio::task::block_in_place(|| {
        let (lost, successor) = (cluster.node(0), cluster.node(3));
        for other in &cluster.nodes()[1..] {
            lost.command(&["CLUSTER", "FORGET", &id(other)]).expect("it obeys");
        }
        successor.command(&["CLUSTER", "FAILOVER", "TAKEOVER"]).expect("it obeys");
        wait_until("the replica to take over", || is_master(successor));
    });
    let until = Instant::now() + PATIENCE;
    let mut in_a_row = 0;
    while in_a_row < 100 {
        for (number, store) in stores.iter().enumerate() {
            for (node, key) in keys.iter().enumerate() {
                in_a_row += 1;
                if let Err(error) = admits(store, key).await {
                    assert!(Instant::now() < until, "store {number}, node {node}: {error:?}");
                    in_a_row = 0;
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for store in &stores {
        store.ready(Duration::from_secs(1)).await.expect("all works");
    }
}

/// It is the only node that answers for a while, and the only one that the store was built with. When the
/// others resume, they are still known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_only_node_that_answers_has_forgotten_is_not_forgotten_by_a_store() {
    let cluster = start(3, 0);
    for node in cluster.nodes() {
        // No node is considered dead because it pauses for a moment.
        node.command(&["CONFIG", "SET", "cluster-node-timeout", "60000"]).expect("it obeys");
    }
    let (lost, others) = (cluster.node(0), [cluster.node(1), cluster.node(2)]);
    let keys: Vec<Key> = (0..3).map(|node| key_on(&cluster, node)).collect();
    let store = RedisStore::builder(Servers::cluster([lost.url()]).expect("it is an address"));
    let store = ready(store.timeout(Duration::from_millis(100)).connect_timeout(PATIENCE)).await;
    for other in others {
        lost.command(&["CLUSTER", "FORGET", &id(other)]).expect("it obeys");
        other.pause().expect("it can be stopped");
    }
    let (before, until) = (calls(lost, "cluster").expect("it tells"), Instant::now() + PATIENCE);
    while calls(lost, "cluster").expect("it tells") < before + 3 {
        assert!(Instant::now() < until, "it is not asked");
        admits(&store, &keys[1]).await.expect_err("its node does not answer");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    others.iter().for_each(|other| other.resume().expect("it goes on"));
    for key in &keys[1..] {
        let until = Instant::now() + PATIENCE;
        while let Err(error) = admits(&store, key).await {
            assert!(Instant::now() < until, "{error:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// It accepts connections and never answers. The store learns from the others which node has taken its place,
/// and does not wait for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_stands_still_does_not_keep_its_successor_from_being_found() {
    let cluster = start(3, 1);
    let key = key_on(&cluster, 0);
    let mut stores = Vec::new();
    for number in 0..4 {
        let store = builder(&cluster).timeout(Duration::from_millis(100)).prefix(format!("store-{number}"));
        stores.push(ready(store.connect_timeout(Duration::from_secs(60))).await);
    }
    cluster.node(0).pause().expect("it can be stopped");
    // The failure is noticed only when something is asked.
    for store in &stores {
        admits(store, &key).await.expect_err("it does not answer");
    }
    tokio::task::block_in_place(|| {
        wait_until("the replica to take over", || is_master(cluster.node(3)));
    });
    let until = Instant::now() + Duration::from_secs(10);
    for store in &stores {
        while let Err(error) = admits(store, &key).await {
            assert!(Instant::now() < until, "{error:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// A node configured not to name hosts names only a port, which is on the host of the node that names it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_sent_to_a_port_of_the_same_host_finds_it() {
    let cluster = start(3, 0);
    for node in cluster.nodes() {
        let setting = ["CONFIG", "SET", "cluster-preferred-endpoint-type", "unknown-endpoint"];
        if let Err(error) = node.command(&setting) {
            return eprintln!("not tested: {error}");
        }
    }
    let store = ready(builder(&cluster).timeout(Duration::from_secs(2))).await;
    let key = key_on(&cluster, 0);
    let slot = cluster.slot(&key.to_string()).expect("it has one");
    assert!(admits(&store, &key).await.expect("it is decided"));
    cluster.begin_move(slot, 0, 1).unwrap_or_else(|error| panic!("{error}"));
    cluster.move_keys(slot, 0, 1).unwrap_or_else(|error| panic!("{error}"));
    for _ in 0..10 {
        assert!(admits(&store, &key).await.expect("it is decided where the counter is"));
    }
    cluster.end_move(slot, 1).unwrap_or_else(|error| panic!("{error}"));
    for _ in 0..10 {
        assert!(admits(&store, &key).await.expect("it is decided where the slot is"));
    }
}

/// Existing connections work, and no new ones are accepted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_cannot_be_asked_for_their_slots_are_no_trouble_while_they_work() {
    let cluster = start(3, 0);
    let store = ready(builder(&cluster).timeout(PATIENCE)).await;
    let key = key_on(&cluster, 0);
    let slot = cluster.slot(&key.to_string()).expect("it has one").to_string();
    let ids: Vec<String> = cluster.nodes().iter().map(id).collect();
    let mut connections: Vec<_> =
        cluster.nodes().iter().map(|node| node.connect().expect("it is reached")).collect();
    for connection in &mut connections {
        redis::cmd("CONFIG").arg(&["SET", "maxclients", "1"]).query::<()>(connection).expect("it obeys");
    }
    let until = Instant::now() + PATIENCE;
    // A slot that has moved is a reason to refresh the slot map.
    for owner in (0..3).cycle() {
        for number in [owner, (owner + 1) % 3, (owner + 2) % 3] {
            let told = redis::cmd("CLUSTER").arg(&["SETSLOT", &slot, "NODE", &ids[owner]]).clone();
            told.query::<()>(&mut connections[number]).expect("it obeys");
        }
        // A peek leaves nothing behind that would have to move along.
        let looked = store.peek(&[Charge::new(rule("maps"), &key, &Quota::per_day(10))]).await;
        looked.unwrap_or_else(|error| panic!("every node works: {error:?}"));
        assert!(!store.breaker().is_open(), "{:?}", store.breaker());
        let asked = connections.iter_mut().all(|node| number(node, "rejected_connections") > 1);
        if asked {
            break;
        }
        assert!(Instant::now() < until, "nobody asks who has which slots");
    }
    store.ready(Duration::ZERO).await.expect("all works");
}

/// They accept connections and answer nothing. Their failure is reported although it is unknown yet which
/// nodes have taken over their slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_all_stand_still_are_soon_said_to_fail() {
    let cluster = start(3, 0);
    let store =
        builder(&cluster).timeout(Duration::from_millis(100)).connect_timeout(Duration::from_secs(60));
    let store = ready(store).await;
    for node in cluster.nodes() {
        node.pause().expect("it can be stopped");
    }
    admits(&store, &Key::from("anybody")).await.expect_err("it does not answer");
    let mut states = store.watch_breaker();
    let open = states.wait_for(ratekeeper_redis::BreakerState::is_open);
    tokio::time::timeout(Duration::from_secs(5), open).await.expect("it is told").expect("it is told");
}

/// One of the numbers that a server reports in its info.
fn number(node: &mut redis::Connection, name: &str) -> u64 {
    let info: String = redis::cmd("INFO").arg("stats").query(node).expect("it tells");
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|number| number.trim().parse().ok()).expect("it tells this")
}

/// One of three nodes is gone permanently. The others need not be asked constantly whether any of them has
/// its slots.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_that_does_not_come_is_looked_for_ever_more_seldom() {
    let cluster = start(3, 0);
    let store = ready(builder(&cluster).timeout(PATIENCE)).await;
    let key = key_on(&cluster, 2);
    let mut connections: Vec<_> =
        [0, 1].map(|node| cluster.node(node).connect().expect("it is reached")).into_iter().collect();
    cluster.node(2).kill().expect("it can be killed");
    // The failure is noticed only when something is asked.
    let until = Instant::now() + PATIENCE;
    while !store.breaker().is_open() {
        assert!(Instant::now() < until, "the breaker is closed");
        admits(&store, &key).await.expect_err("its node is gone");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for (asks, span, most) in [(false, 5, 20), (true, 3, 40)] {
        let mut count = || {
            let connected =
                connections.iter_mut().map(|node| number(node, "total_connections_received")).sum();
            let asked = [0, 1].map(|node| calls(cluster.node(node), "cluster").expect("it tells"));
            (connected, asked)
        };
        let (before, began): ((u64, _), _) = (count(), Instant::now());
        while began.elapsed() < Duration::from_secs(span) {
            if asks {
                admits(&store, &key).await.expect_err("its node is gone");
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let after = count();
        let connected = after.0 - before.0;
        assert!(connected < 10, "{connected} connections were made in {span} seconds");
        for node in [0, 1] {
            let asked = after.1[node] - before.1[node];
            assert!((1..most).contains(&asked), "node {node} was asked {asked} times in {span} seconds");
        }
    }
}

/// Requests in the meantime do not wait for long, however long it takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_that_comes_late_is_found_soon() {
    let cluster = start(3, 1);
    let store = ready(builder(&cluster).timeout(Duration::from_millis(100))).await;
    let (key, successor) = (key_on(&cluster, 0), cluster.node(3));
    successor.command(&["CONFIG", "SET", "cluster-replica-no-failover", "yes"]).expect("it obeys");
    cluster.node(0).kill().expect("it can be killed");
    let gone = Instant::now();
    while gone.elapsed() < Duration::from_secs(5) {
        admits(&store, &key).await.expect_err("nobody has its slots");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    successor.command(&["CLUSTER", "FAILOVER", "TAKEOVER"]).expect("it obeys");
    let came = Instant::now();
    while admits(&store, &key).await.is_err() {
        assert!(came.elapsed() < PATIENCE, "it is not found");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let took = came.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
}

/// The first request is redirected to the new node. Requests that arrive while the connection is being made
/// can wait just like the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_lives_on_a_node_that_is_new_waits_for_it() {
    let mut cluster = start(3, 0);
    let store = ready(builder(&cluster).timeout(Duration::from_secs(2))).await;
    let new = cluster.add_master().unwrap_or_else(|error| panic!("{error}"));
    let key = key_on(&cluster, 0);
    let slot = cluster.slot(&key.to_string()).expect("it has one");
    cluster.reshard(slot..=slot, 0, new).unwrap_or_else(|error| panic!("{error}"));
    let states = store.watch_breaker();
    let mut tasks = Vec::new();
    for _ in 0..200 {
        let store = store.clone();
        tasks.push(tokio::spawn(async move { admits(&store, &key).await }));
        tokio::time::sleep(Duration::from_micros(200)).await;
    }
    for task in tasks {
        let decided = task.await.expect("no panic");
        assert!(decided.unwrap_or_else(|error| panic!("its node works: {error:?}")));
    }
    assert!(!states.has_changed().expect("the store is there"), "{:?}", store.breaker());
}
