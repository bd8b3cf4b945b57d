//! Counters on a cluster: spread, moved, and failed over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ratekeeper_core::{Charge, DAY, Debit, Key, Quota, Receipt, Refund, RuleName, Store};
use ratekeeper_redis::{RedisStore, Servers};
use ratekeeper_servers::{Cluster, Mode, Proxy, RedisServer};

use crate::support::PATIENCE;

async fn store(cluster: &Cluster) -> RedisStore {
    let servers = Servers::cluster(cluster.urls()).expect("the cluster has nodes");
    let store = RedisStore::builder(servers).timeout(PATIENCE).denial_cache_ttl(Duration::ZERO);
    let store = store.build().expect("the store can be made");
    store.ready(PATIENCE).await.expect("the cluster works");
    store
}

fn rule(name: &str) -> RuleName {
    RuleName::new(name).expect("a name")
}

fn start(masters: usize, replicas: usize) -> Cluster {
    Cluster::start(masters, replicas).unwrap_or_else(|error| panic!("{error}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_key_is_counted_wherever_it_lives() {
    let cluster = start(3, 0);
    let store = store(&cluster).await;
    let (quota, per_user) = (Quota::per_day(3), rule("per-user"));
    for caller in 0..200_u64 {
        let key = Key::from(caller);
        let charge = [Charge::new(per_user, &key, &quota)];
        for left in [2, 1, 0] {
            let decision = store.charge(&charge).await.expect("the store decides");
            assert!(decision.is_admitted());
            assert_eq!(decision.outcome("per-user").unwrap().remaining(), left, "{key}");
        }
        assert!(!store.charge(&charge).await.expect("the store decides").is_admitted(), "{key}");
        store.reset(per_user, (&key).into()).await.expect("the store resets");
        assert_eq!(store.peek(&charge).await.unwrap().outcome("per-user").unwrap().remaining(), 3, "{key}");
    }
    for node in cluster.nodes() {
        assert!(node.commands_processed().unwrap() > 200, "each node has its share");
    }
}

/// If one slot denies, the others give back, and the caller sees untouched budgets.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_over_several_slots_is_charged_whole_or_not_at_all() {
    let cluster = start(3, 0);
    let store = store(&cluster).await;
    let (wide, narrow) = (Quota::per_day(100), Quota::fixed_window(5, DAY));
    for round in 0..20_u64 {
        let keys = [Key::from(round), Key::from(round).and("other"), Key::from("all").and(round)];
        let charges = [
            Charge::new(rule("a"), &keys[0], &wide).cost(2),
            Charge::new(rule("b"), &keys[1], &narrow),
            Charge::new(rule("c"), &keys[2], &wide),
        ];
        for i in 1..=5 {
            let decision = store.charge(&charges).await.expect("the store decides");
            assert!(decision.is_admitted(), "{decision:?}");
            let remaining: Vec<_> = decision.outcomes().map(|(_, outcome)| outcome.remaining()).collect();
            assert_eq!(remaining, [100 - 2 * i, 5 - i, 100 - i], "in the order of the charges");
        }
        let denied = store.charge(&charges).await.expect("the store decides");
        assert_eq!(denied.denied_by().map(RuleName::as_str).collect::<Vec<_>>(), ["b"]);
        let remaining: Vec<_> = denied.outcomes().map(|(_, outcome)| outcome.remaining()).collect();
        assert_eq!(remaining, [90, 0, 95], "as if nothing had been taken");
        // The refund is under way when the denial is returned, and takes a moment.
        let deadline = Instant::now() + PATIENCE;
        loop {
            let peeked = store.peek(&charges).await.expect("the store answers");
            let remaining: Vec<_> = peeked.outcomes().map(|(_, outcome)| outcome.remaining()).collect();
            if remaining == [90, 0, 95] {
                break;
            }
            assert!(Instant::now() < deadline, "nothing was given back: {remaining:?}");
            tokio::task::yield_now().await;
        }
    }
}

/// Slots decide one after the other, and each node has its own clock. A log gives back what was charged at
/// one exact moment, so the receipt of each rule has to carry the moment at which its own slot decided.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receipt_gives_back_one_rule_of_a_request_over_several_slots() {
    let cluster = start(3, 0);
    let store = store(&cluster).await;
    let quota = Quota::sliding_log(10, DAY);
    let mut moments_differed = false;
    for round in 0..20_u64 {
        let keys = [Key::from(round), Key::from(round).and("other"), Key::from("all").and(round)];
        let rules = [rule("a"), rule("b"), rule("c")];
        let charge = |i: usize| Charge::new(rules[i], &keys[i], &quota).cost(3);
        let charges = [charge(0), charge(1), charge(2)];
        let decision = store.charge(&charges).await.expect("the store decides");
        assert!(decision.is_admitted());
        for (i, rule) in rules.iter().enumerate() {
            let receipt = Receipt::of(&decision, *rule).expect("an admitted charge has a receipt");
            moments_differed |= receipt.at() != decision.at();
            let refund = Refund::new(*rule, &keys[i], 2).receipt(receipt);
            store.refund(&[refund]).await.expect("the store gives back");
        }
        let peeked = store.peek(&charges).await.expect("the store answers");
        let remaining: Vec<_> = peeked.outcomes().map(|(_, outcome)| outcome.remaining()).collect();
        assert_eq!(remaining, [9, 9, 9], "{decision:?}");
    }
    assert!(moments_differed, "nothing was tested");
}

/// A peek has taken nothing, so nothing is given back for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peek_over_several_slots_gives_nothing_back() {
    let cluster = start(3, 0);
    let store = store(&cluster).await;
    let (wide, narrow) = (Quota::per_day(100), Quota::fixed_window(5, DAY));
    let keys = [Key::from("one"), Key::from("another"), Key::from("a third")];
    let charge = |i: usize, quota| Charge::new(rule("r"), &keys[i], quota).cost(5);
    let charges = [charge(0, &wide), charge(1, &narrow), charge(2, &wide)];
    assert!(store.charge(&charges).await.expect("the store decides").is_admitted());
    for _ in 0..10 {
        let peeked = store.peek(&charges).await.expect("the store answers");
        assert!(!peeked.is_admitted());
        drop(store.peek(&charges));
        // What is handed over later is done later, on each node.
        let nothing = keys.each_ref().map(|key| Refund::new(rule("r"), key, 0));
        store.refund(&nothing).await.expect("the store gives back");
        let peeked = store.peek(&charges).await.expect("the store answers");
        let remaining: Vec<_> = peeked.outcomes().map(|(_, outcome)| outcome.remaining()).collect();
        assert_eq!(remaining, [95, 0, 95]);
    }
}

/// What was to be settled at a master that is gone is settled at its successor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_to_be_settled_is_kept_until_a_master_is_replaced() {
    let cluster = start(3, 1);
    let store = store(&cluster).await;
    let (quota, per_user) = (Quota::fixed_window(10, 30 * DAY), rule("settled"));
    let keys: Vec<Key> = (0..50_u64).map(Key::from).collect();
    tokio::task::block_in_place(|| {
        let master = cluster.owner(0).unwrap();
        cluster.wait_until_in_sync().unwrap();
        cluster.kill(master).unwrap();
        // Calls to the dead master are refused at first, until it is known to fail.
        let deadline = Instant::now() + PATIENCE;
        while !store.breaker().is_open() {
            assert!(Instant::now() < deadline, "nobody has seen that a node is gone");
            for key in &keys {
                drop(store.peek(&[Charge::new(rule("seen"), key, &quota)]));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        for key in &keys {
            drop(store.debit(&[Debit::new(Charge::new(per_user, key, &quota).cost(3))]));
        }
        cluster.wait_for_failover(master).unwrap_or_else(|error| panic!("{error}"));
    });
    store.ready(PATIENCE).await.expect("the cluster works again");
    let deadline = Instant::now() + PATIENCE;
    for key in &keys {
        loop {
            let peeked = store.peek(&[Charge::new(per_user, key, &quota)]).await.expect("the store answers");
            if peeked.outcome("settled").unwrap().remaining() == 7 {
                break;
            }
            assert!(Instant::now() < deadline, "{key} was never settled: {peeked:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Under contention over slots, never more than the limit is admitted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_over_several_slots_admit_no_more_than_the_limit() {
    let cluster = start(3, 0);
    let (stores, admitted) = ([store(&cluster).await, store(&cluster).await], Arc::new(AtomicU32::new(0)));
    let tasks: Vec<_> = (0..64_usize)
        .map(|task| {
            let (store, admitted) = (stores[task % 2].clone(), Arc::clone(&admitted));
            tokio::spawn(async move {
                let (wide, narrow) = (Quota::per_day(1_000), Quota::sliding_log(40, DAY));
                let (one, other) = (Key::from("one"), Key::from("another"));
                let charges =
                    [Charge::new(rule("wide"), &one, &wide), Charge::new(rule("narrow"), &other, &narrow)];
                for _ in 0..4 {
                    let decision = store.charge(&charges).await.expect("the store decides");
                    admitted.fetch_add(u32::from(decision.is_admitted()), Ordering::Relaxed);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("the task ends well");
    }
    assert_eq!(admitted.load(Ordering::Relaxed), 40);
}

/// Asks about keys until stopped, and returns how many decisions were made and how many failed.
fn load(store: &RedisStore, stop: &Arc<AtomicBool>) -> tokio::task::JoinHandle<(u32, u32)> {
    let (store, stop) = (store.clone(), Arc::clone(stop));
    tokio::spawn(async move {
        let (quota, per_user) = (Quota::per_day(1_000_000), rule("load"));
        let (mut decided, mut failed) = (0, 0);
        for caller in (0..500_u64).cycle() {
            if stop.load(Ordering::Relaxed) {
                return (decided, failed);
            }
            let key = Key::from(caller);
            match store.charge(&[Charge::new(per_user, &key, &quota)]).await {
                Ok(decision) => {
                    assert!(decision.is_admitted());
                    decided += 1;
                }
                Err(_) => {
                    failed += 1;
                    tokio::task::yield_now().await;
                }
            }
        }
        unreachable!("the numbers do not end")
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_move_under_load_and_no_request_notices() {
    let cluster = start(3, 0);
    let store = store(&cluster).await;
    let quota = Quota::per_day(1_000_000);
    let stop = Arc::new(AtomicBool::new(false));
    let loads: Vec<_> = (0..4).map(|_| load(&store, &stop)).collect();
    tokio::task::block_in_place(|| {
        let from = cluster.owner(0).unwrap();
        let to = (from + 1) % 3;
        cluster.reshard(0..=400, from, to).unwrap_or_else(|error| panic!("{error}"));
        cluster.reshard(0..=200, to, from).unwrap_or_else(|error| panic!("{error}"));
    });
    stop.store(true, Ordering::Relaxed);
    let mut decided = 0;
    for load in loads {
        let (own, failed) = load.await.expect("the load ends well");
        assert_eq!(failed, 0, "no request has failed");
        decided += own;
    }
    // What is counted is what was decided: nothing was lost or counted twice in the process.
    let mut counted = 0;
    for caller in 0..500_u64 {
        let key = Key::from(caller);
        let peeked = store.peek(&[Charge::new(rule("load"), &key, &quota)]).await.expect("the store answers");
        counted += quota.max() - peeked.outcome("load").unwrap().remaining();
    }
    // A day's quota refills eleven a second.
    assert!(counted <= decided && decided - counted < 500 * 12 * 60, "{counted} of {decided}");
    assert!(decided > 100, "{decided}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_dies_is_replaced_and_service_returns() {
    let cluster = start(3, 1);
    let store = store(&cluster).await;
    let stop = Arc::new(AtomicBool::new(false));
    let load = load(&store, &stop);
    tokio::task::block_in_place(|| {
        let master = cluster.owner(0).unwrap();
        cluster.wait_until_in_sync().unwrap();
        cluster.kill(master).unwrap();
        cluster.wait_for_failover(master).unwrap_or_else(|error| panic!("{error}"));
    });
    store.ready(PATIENCE).await.expect("the cluster works again");
    let (quota, per_user) = (Quota::per_day(10), rule("after"));
    for caller in 0..100_u64 {
        let key = Key::from(caller);
        let decision = store.charge(&[Charge::new(per_user, &key, &quota)]).await;
        assert_eq!(decision.expect("the store decides").outcome("after").unwrap().remaining(), 9);
    }
    stop.store(true, Ordering::Relaxed);
    let (decided, _) = load.await.expect("the load ends well");
    assert!(decided > 0);
}

/// A store that is built before its cluster exists finds it later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_comes_later_is_found() {
    let cluster = start(3, 0);
    for node in cluster.nodes() {
        node.pause().expect("it can be stopped");
    }
    let servers = Servers::cluster(cluster.urls()).expect("the cluster has nodes");
    let store = RedisStore::builder(servers).timeout(PATIENCE).connect_timeout(Duration::from_millis(50));
    let store = store.build().expect("the store can be made");
    store.ready(Duration::from_millis(300)).await.expect_err("nobody answers");
    for node in cluster.nodes() {
        node.resume().expect("it goes on");
    }
    store.ready(PATIENCE).await.expect("the cluster works");
    let (quota, key) = (Quota::per_day(3), Key::from("late"));
    assert!(
        store.charge(&[Charge::new(rule("late"), &key, &quota)]).await.expect("it decides").is_admitted()
    );
}

/// The connection over which a node was last asked to run a script.
fn asker(node: &RedisServer) -> Option<String> {
    let redis::Value::BulkString(clients) = node.command(&["CLIENT", "LIST"]).ok()? else { return None };
    let clients = String::from_utf8(clients).ok()?;
    let asker = clients.lines().find(|client| client.contains("cmd=eval"))?;
    Some(asker.split(' ').next()?.to_owned())
}

/// A node without slots has no slot to probe, and must not be forgotten when the slot map is next refreshed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_slot_of_a_new_node_is_on_its_way_for_long() {
    let mut cluster = start(3, 0);
    let new = cluster.add_master().unwrap_or_else(|error| panic!("{error}"));
    let store = store(&cluster).await;
    let slot = cluster.slot("moving").expect("it has one");
    cluster.begin_move(slot, cluster.owner(slot).unwrap(), new).unwrap_or_else(|error| panic!("{error}"));
    let (quota, key) = (Quota::per_day(100), Key::from("moving"));
    let mut first = None;
    for left in (70..100).rev() {
        let decision =
            store.charge(&[Charge::new(rule("r"), &key, &quota)]).await.expect("the store decides");
        assert_eq!(decision.outcome("r").unwrap().remaining(), left);
        if left == 91 {
            first = asker(cluster.node(new));
        }
        if left == 90 {
            // Another slot that has moved is a reason to refresh the slot map.
            let (other, slot) = (Key::from("moved"), cluster.slot("moved").unwrap());
            let owner = cluster.owner(slot).unwrap();
            cluster.reshard(slot..=slot, owner, (owner + 1) % 3).unwrap_or_else(|error| panic!("{error}"));
            store.charge(&[Charge::new(rule("r"), &other, &quota)]).await.expect("the store decides");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let asker_at_the_end = asker(cluster.node(new));
    assert!(first.is_some() && asker_at_the_end == first, "it is connected to once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_dropped_while_it_looks_for_the_nodes_leaves_nothing_behind() {
    let cluster = start(3, 0);
    let node = cluster.node(0);
    let proxy = Proxy::start(node.port()).expect("a proxy");
    proxy.set(Mode::delay(Duration::from_millis(100))).expect("it obeys");
    let servers = Servers::cluster([node.url_with_port(proxy.port())]).expect("it is an address");
    let store =
        RedisStore::builder(servers).connect_timeout(PATIENCE).build().expect("the store can be made");
    let connected = |server: &ratekeeper_servers::RedisServer| match server.command(&["CLIENT", "LIST"]) {
        Ok(redis::Value::BulkString(list)) => list.split(|byte| *byte == b'\n').count() - 1,
        Ok(redis::Value::VerbatimString { text, .. }) => text.lines().count(),
        other => panic!("{other:?}"),
    };
    let deadline = Instant::now() + PATIENCE;
    while connected(node) < 2 {
        assert!(Instant::now() < deadline, "nobody looks");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(store);
    // By then it has received its answer.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let deadline = Instant::now() + Duration::from_secs(5);
    while cluster.nodes().iter().any(|node| connected(node) > 1) {
        assert!(Instant::now() < deadline, "somebody is still connected");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The answer may have arrived, but was never polled.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_over_several_slots_that_goes_away_is_given_back() {
    let cluster = start(3, 0);
    let store = store(&cluster).await;
    let (quota, keys) = (Quota::per_day(100), [Key::from("one"), Key::from("another")]);
    let charges = keys.each_ref().map(|key| Charge::new(rule("r"), key, &quota));
    let charging = store.charge(&charges);
    let used = async || -> u32 {
        let peeked = store.peek(&charges).await.expect("the store answers");
        peeked.outcomes().map(|(_, outcome)| 100 - outcome.remaining()).sum()
    };
    let deadline = Instant::now() + PATIENCE;
    while used().await < 2 {
        assert!(Instant::now() < deadline, "nothing is charged");
    }
    // What was counted is answered soon after.
    tokio::time::sleep(Duration::from_millis(50)).await;
    drop(charging);
    let deadline = Instant::now() + PATIENCE;
    while used().await > 0 {
        assert!(Instant::now() < deadline, "nothing was given back");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Such a store reports it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_whose_runtime_has_ended_is_open() {
    let cluster = start(3, 0);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let urls: Vec<_> = cluster.urls().into_iter().collect();
    let store = runtime.spawn(async move {
        let store = RedisStore::builder(Servers::cluster(urls).expect("the cluster has nodes"));
        let store = store.timeout(PATIENCE).build().expect("the store can be made");
        store.ready(PATIENCE).await.expect("the cluster works");
        store
    });
    let store = store.await.expect("no panic");
    runtime.shutdown_background();
    let mut states = store.watch_breaker();
    let open = states.wait_for(ratekeeper_redis::BreakerState::is_open);
    tokio::time::timeout(PATIENCE, open).await.expect("it is said in time").expect("it is said");
    store.ready(Duration::from_millis(1)).await.expect_err("it does not come back");
}
