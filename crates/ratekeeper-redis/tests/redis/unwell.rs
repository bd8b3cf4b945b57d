//! An unhealthy cluster: down as a whole, with moving slots, or with nodes that do not answer.

use std::time::{Duration, Instant};

use ratekeeper_core::{Answer, AnswerFuture, Charge, Decision, Key, Quota, RuleName, Store, StoreError};
use ratekeeper_redis::{RedisStore, Servers};
use ratekeeper_servers::{Cluster, RedisServer, wait};

use crate::support::{PATIENCE, key_on, rule};

/// How much later than its deadline an answer may come, on a busy machine.
const MARGIN: Duration = Duration::from_millis(250);

fn start() -> Cluster {
    Cluster::start(3, 0).unwrap_or_else(|error| panic!("{error}"))
}

async fn store(cluster: &Cluster, timeout: Duration) -> RedisStore {
    let servers = Servers::cluster(cluster.urls()).expect("the cluster has nodes");
    let store = RedisStore::builder(servers).timeout(timeout).max_backoff(Duration::from_millis(50));
    let store = store.build().expect("the store can be made");
    store.ready(PATIENCE).await.expect("the cluster works");
    store
}

fn charging(store: &RedisStore, rule: RuleName, key: &Key) -> AnswerFuture<Decision> {
    match store.charge(&[Charge::new(rule, key, &Quota::per_day(1_000_000))]) {
        charging @ Answer::Later(_) => charging.into_future(),
        Answer::Now(answer) => panic!("answered at once: {answer:?}"),
    }
}

async fn admits(store: &RedisStore, rule: RuleName, key: &Key) -> Result<bool, StoreError> {
    let decided = store.charge(&[Charge::new(rule, key, &Quota::per_day(1_000_000))]).await;
    decided.map(|decision| decision.is_admitted())
}

/// How many commands a node has refused because the cluster is down.
fn refused(node: &RedisServer) -> u32 {
    let Ok(redis::Value::BulkString(info)) = node.command(&["INFO", "errorstats"]) else { return 0 };
    let info = String::from_utf8_lossy(&info);
    let count = info.lines().find_map(|line| line.strip_prefix("errorstat_CLUSTERDOWN:count=")?.parse().ok());
    count.unwrap_or(0)
}

fn is_down(node: &RedisServer) -> bool {
    match node.command(&["CLUSTER", "INFO"]) {
        Ok(redis::Value::BulkString(info)) => String::from_utf8_lossy(&info).contains("cluster_state:fail"),
        _ => false,
    }
}

/// Its nodes answer, and refuse everything. Then they are not asked, and each request fails immediately.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_down_is_not_asked_until_it_works() {
    let deadline = Duration::from_millis(200);
    let cluster = start();
    let store = store(&cluster, deadline).await;
    let (rule, key) = (rule("down"), key_on(&cluster, 1));
    assert!(admits(&store, rule, &key).await.expect("it is decided"));
    let (gone, node) = (cluster.node(0), cluster.node(1));
    tokio::task::block_in_place(|| {
        gone.pause().expect("it can be stopped");
        wait::until(
            "the cluster to be down",
            PATIENCE,
            || if is_down(node) { Ok(()) } else { Err("it works") },
        )
        .expect("the others see that a node is gone");
    });
    // The failure is noticed only when something is asked.
    let until = Instant::now() + PATIENCE;
    while !store.breaker().is_open() {
        assert!(Instant::now() < until, "the breaker is closed");
        admits(&store, rule, &key).await.expect_err("the cluster is down");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (before, mut longest) = (refused(node), Duration::ZERO);
    for _ in 0..500 {
        let asked = Instant::now();
        admits(&store, rule, &key).await.expect_err("the cluster is down");
        longest = longest.max(asked.elapsed());
    }
    assert!(longest < deadline, "it fails at once: {longest:?}");
    // Only some probes.
    let asked = refused(node) - before;
    assert!(asked < 100, "it was asked {asked} times");
    tokio::task::block_in_place(|| {
        gone.resume().expect("it goes on");
        cluster.wait_until_well().unwrap_or_else(|error| panic!("{error}"));
    });
    let well = Instant::now();
    store.ready(PATIENCE).await.expect("it is used again");
    assert!(well.elapsed() < Duration::from_secs(5), "{:?}", well.elapsed());
    assert!(admits(&store, rule, &key).await.expect("it is decided"));
}

/// A redirected request has already waited, and so has less time left than those that are under way there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_sent_elsewhere_waits_no_longer_than_its_deadline() {
    let deadline = Duration::from_secs(1);
    let cluster = start();
    for node in cluster.nodes() {
        // No node is considered dead because it pauses for a moment.
        node.command(&["CONFIG", "SET", "cluster-node-timeout", "60000"]).expect("it obeys");
    }
    let store = store(&cluster, deadline).await;
    let (rule, moving, there) = (rule("elsewhere"), key_on(&cluster, 0), key_on(&cluster, 1));
    let slot = cluster.slot(&moving.to_string()).expect("it has one");
    // The first node redirects requests about new counters of the slot to the second.
    cluster.begin_move(slot, 0, 1).unwrap_or_else(|error| panic!("{error}"));
    for key in [&moving, &there] {
        assert!(admits(&store, rule, key).await.expect("it is decided"));
    }
    // No deadline of those is being watched any more.
    tokio::time::sleep(deadline).await;
    cluster.node(0).pause().expect("it can be stopped");
    let (asked, sent_elsewhere) = (Instant::now(), charging(&store, rule, &moving));
    // Half of its time is over when both goes to the second are under way.
    tokio::time::sleep(deadline / 2).await;
    cluster.node(1).pause().expect("it can be stopped");
    let mut under_way = Vec::new();
    for _ in 0..2 {
        under_way.push(charging(&store, rule, &there));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    cluster.node(0).resume().expect("it goes on");
    sent_elsewhere.await.expect_err("the second does not answer");
    let waited = asked.elapsed();
    cluster.node(1).resume().expect("it goes on");
    assert!(waited < deadline + MARGIN, "{waited:?}");
}

/// One counter has moved, the other has not. A call about both is told to try again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_share_a_slot_that_is_on_its_way_do_not_keep_each_other_from_it() {
    let cluster = start();
    let store = store(&cluster, PATIENCE).await;
    let (rules, key) = ([rule("here"), rule("there")], Key::from("moving"));
    for rule in rules {
        assert!(admits(&store, rule, &key).await.expect("it is decided"));
    }
    let slot = cluster.slot("moving").expect("it has one");
    let from = cluster.owner(slot).expect("somebody has it");
    let to = (from + 1) % 3;
    cluster.begin_move(slot, from, to).unwrap_or_else(|error| panic!("{error}"));
    let port = cluster.node(to).port().to_string();
    let counter = format!("ratekeeper:there:{{{key}}}");
    let migrate = ["MIGRATE", "127.0.0.1", &port, &counter, "0", "10000"];
    cluster.node(from).command(&migrate).expect("it obeys");
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let (store, rule) = (store.clone(), rules[task % 2]);
            tokio::spawn(async move {
                for _ in 0..50 {
                    let decided = admits(&store, rule, &key).await;
                    assert!(decided.unwrap_or_else(|error| panic!("{rule}: {error:?}")));
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("nobody fails");
    }
    for rule in rules {
        let peeked = store.peek(&[Charge::new(rule, &key, &Quota::per_day(1_000_000))]).await;
        let left = peeked.expect("it answers").outcome(rule.as_str()).expect("it was asked").remaining();
        // A day's quota refills eleven a second.
        let counted = 1_000_000 - left;
        assert!((1..=401).contains(&counted), "{counted}");
    }
}

/// A slot that no node serves affects only its own keys, and not the others of the node that says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_nobody_serves_is_no_reason_to_fail_others() {
    let cluster = start();
    let store = store(&cluster, Duration::from_millis(200)).await;
    let (rule, homeless) = (rule("nobody"), key_on(&cluster, 0));
    let slot = cluster.slot(&homeless.to_string()).expect("it has one");
    let is_other = |key: &String| {
        cluster.slot(key).is_ok_and(|other| other != slot && cluster.owner(other).is_ok_and(|node| node == 0))
    };
    let other = (0..10_000).map(|n| format!("other-{n}")).find(is_other).expect("the node has other slots");
    let other = Key::from(other);
    for key in [&homeless, &other] {
        assert!(admits(&store, rule, key).await.expect("it is decided"));
    }
    for node in cluster.nodes() {
        node.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]).expect("it obeys");
        // Nodes that do not have the slot may know of it or not.
        drop(node.command(&["CLUSTER", "DELSLOTS", &slot.to_string()]));
    }
    for _ in 0..50 {
        admits(&store, rule, &homeless).await.expect_err("nobody serves it");
        assert!(admits(&store, rule, &other).await.expect("its node works"));
    }
}
