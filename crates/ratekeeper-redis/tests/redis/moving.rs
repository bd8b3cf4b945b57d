//! Callers whose slot is moving from one node of a cluster to another, for as long as that takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratekeeper_core::{Charge, DAY, Decision, Key, Quota, RuleName, Store};
use ratekeeper_redis::{RedisStore, RedisStoreBuilder, Servers};
use ratekeeper_servers::Cluster;

use crate::support::{PATIENCE, key_on, ready, rule};

/// Two nodes, a caller on the first, and its slot.
struct Setup {
    cluster: Cluster,
    key: Key,
    slot: u16,
    store: RedisStore,
}

impl Setup {
    async fn new() -> Self {
        Self::with(|store| store.timeout(PATIENCE)).await
    }

    async fn with(settings: impl FnOnce(RedisStoreBuilder) -> RedisStoreBuilder) -> Self {
        let cluster = Cluster::start(2, 0).unwrap_or_else(|error| panic!("{error}"));
        let key = key_on(&cluster, 0);
        let slot = cluster.slot(&key.to_string()).expect("it has a slot");
        let servers = Servers::cluster(cluster.urls()).expect("the cluster has nodes");
        let store = RedisStore::builder(servers).denial_cache_ttl(Duration::ZERO);
        Self { cluster, key, slot, store: ready(settings(store)).await }
    }

    /// The decision on the rules of one request.
    async fn charge(&self, charges: &[(&str, Quota)]) -> Decision {
        let charges: Vec<_> =
            charges.iter().map(|(name, quota)| Charge::new(rule(name), &self.key, quota)).collect();
        self.store.charge(&charges).await.expect("it is decided")
    }

    async fn admits(&self, charges: &[(&str, Quota)]) -> bool {
        self.charge(charges).await.is_admitted()
    }

    /// How much of each budget was used, according to one peek.
    async fn used<const N: usize>(&self, charges: [(&str, Quota); N]) -> [u32; N] {
        let asked = charges.each_ref().map(|(name, quota)| Charge::new(rule(name), &self.key, quota));
        let peeked = self.store.peek(&asked).await.expect("it looks");
        charges
            .each_ref()
            .map(|(name, quota)| quota.max() - peeked.outcome(name).expect("it was asked").remaining())
    }
}

fn window(limit: u32) -> Quota {
    Quota::fixed_window(limit, 30 * DAY)
}

/// Some of their counters are on the one node, some on the other, and some nowhere yet. No node executes a
/// call about several counters of which it does not have all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_rules_of_a_caller_are_decided_while_its_slot_moves() {
    let setup = Setup::new().await;
    let (a, b, c) = (("a", window(100)), ("b", window(100)), ("c", window(100)));
    assert!(setup.admits(&[a]).await);
    setup.cluster.begin_move(setup.slot, 0, 1).unwrap_or_else(|error| panic!("{error}"));
    // New ones, then one that is here with one that is there, then all of them.
    assert!(setup.admits(&[b, c]).await);
    assert!(setup.admits(&[a, b]).await);
    let all = setup.charge(&[a, b, c, a]).await;
    let told: Vec<_> = all.outcomes().map(|(rule, outcome)| (rule.as_str(), outcome.remaining())).collect();
    assert_eq!(told, [("a", 97), ("b", 97), ("c", 98), ("a", 96)], "each has its place");
    assert_eq!(setup.used([b, a, c]).await, [3, 4, 2]);
    setup.cluster.move_keys(setup.slot, 0, 1).unwrap_or_else(|error| panic!("{error}"));
    assert!(setup.admits(&[a, b, c]).await);
    setup.cluster.end_move(setup.slot, 1).unwrap_or_else(|error| panic!("{error}"));
    assert!(setup.admits(&[a, b, c]).await);
    assert_eq!(setup.used([a, b, c]).await, [6, 5, 4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_denied_while_its_slot_moves_is_charged_nothing() {
    let setup = Setup::new().await;
    let (wide, tight) = (("wide", window(100)), ("tight", window(1)));
    let queue = ("queue", Quota::leaky_bucket(100, 30 * DAY));
    assert!(setup.admits(&[wide]).await);
    setup.cluster.begin_move(setup.slot, 0, 1).unwrap_or_else(|error| panic!("{error}"));
    assert!(setup.admits(&[wide, tight, queue]).await);
    for _ in 0..10 {
        let denied = setup.charge(&[queue, wide, tight]).await;
        assert_eq!(denied.denied_by().map(RuleName::as_str).collect::<Vec<_>>(), ["tight"]);
    }
    // The refund is done before a later request to the same node is answered, or soon after.
    let given_back = async {
        while setup.used([wide, tight, queue]).await != [2, 1, 1] {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, given_back).await.expect("a denial takes nothing");
}

/// Complete requests: neither more than the limit is charged, nor any request in part.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_to_and_fro_under_requests_of_several_rules() {
    const PAIRS: usize = 20;
    let setup = Setup::new().await;
    let stop = Arc::new(AtomicBool::new(false));
    let load = |_| {
        let (store, stop, key) = (setup.store.clone(), Arc::clone(&stop), setup.key);
        tokio::spawn(async move {
            let mut admitted = [0_u32; PAIRS];
            let (wide, narrow) = (window(1_000_000), window(10));
            for pair in (0..PAIRS).cycle() {
                if stop.load(Ordering::Relaxed) {
                    return admitted;
                }
                let (one, other) = (rule(&format!("wide-{pair}")), rule(&format!("narrow-{pair}")));
                // Half of them are never used up.
                let narrow = if pair % 2 == 0 { wide } else { narrow };
                let both = [Charge::new(one, &key, &wide), Charge::new(other, &key, &narrow)];
                let decision = store.charge(&both).await.expect("it is decided");
                admitted[pair] += u32::from(decision.is_admitted());
            }
            unreachable!("the numbers do not end")
        })
    };
    let loads: Vec<_> = (0..4).map(load).collect();
    tokio::task::block_in_place(|| {
        for (from, to) in [(0, 1), (1, 0), (0, 1)] {
            let (cluster, pause) = (&setup.cluster, Duration::from_millis(100));
            cluster.begin_move(setup.slot, from, to).unwrap_or_else(|error| panic!("{error}"));
            std::thread::sleep(pause);
            cluster.move_keys(setup.slot, from, to).unwrap_or_else(|error| panic!("{error}"));
            std::thread::sleep(pause);
            cluster.end_move(setup.slot, to).unwrap_or_else(|error| panic!("{error}"));
            std::thread::sleep(pause);
        }
    });
    stop.store(true, Ordering::Relaxed);
    let mut admitted = [0; PAIRS];
    for load in loads {
        let own = load.await.expect("every request was decided");
        admitted.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
    }
    for (pair, admitted) in admitted.into_iter().enumerate() {
        assert!(admitted > 0 && (pair % 2 == 0 || admitted <= 10), "{pair}: {admitted}");
        let (one, other) = (format!("wide-{pair}"), format!("narrow-{pair}"));
        let narrow = if pair % 2 == 0 { window(1_000_000) } else { window(10) };
        let settled = async {
            let used = || setup.used([(&one, window(1_000_000)), (&other, narrow)]);
            while used().await != [admitted; 2] {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(5), settled).await.is_err() {
            let used = setup.used([(&one, window(1_000_000)), (&other, narrow)]).await;
            panic!("{pair}: {used:?} of {admitted}");
        }
    }
}

/// Excess requests are refused immediately, as by a node whose line is full. Those that may wait do so until
/// the node is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_than_may_wait_for_a_node_that_fails_with_a_slot_on_its_way_to_it() {
    const MOST: usize = 50;
    let deadline = Duration::from_secs(2);
    let setup = Setup::with(|store| store.timeout(deadline).max_waiting(MOST)).await;
    let (there, quota) = (key_on(&setup.cluster, 1), window(1_000_000));
    for node in setup.cluster.nodes() {
        // No node is considered dead because it pauses for a moment.
        node.command(&["CONFIG", "SET", "cluster-node-timeout", "60000"]).expect("it obeys");
    }
    setup.cluster.begin_move(setup.slot, 0, 1).unwrap_or_else(|error| panic!("{error}"));
    setup.cluster.node(1).pause().expect("it can be stopped");
    setup.store.charge(&[Charge::new(rule("there"), &there, &quota)]).await.expect_err("it does not answer");
    let mut tasks = Vec::new();
    for _ in 0..20 {
        for _ in 0..20 {
            let (store, key) = (setup.store.clone(), setup.key);
            tasks.push(tokio::spawn(async move {
                let asked = Instant::now();
                let decided = store.charge(&[Charge::new(rule("moving"), &key, &quota)]).await;
                (decided.is_ok(), asked.elapsed())
            }));
        }
        // So that none is refused because too many wait for the first node.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Excess requests are refused before the others are served.
    let asked = Instant::now();
    while tasks.iter().filter(|task| !task.is_finished()).count() > MOST && asked.elapsed() < deadline / 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    setup.cluster.node(1).resume().expect("it goes on");
    let (mut decided, mut waited) = (0, 0);
    for task in tasks {
        let (is_decided, took) = task.await.expect("no panic");
        decided += usize::from(is_decided);
        waited += usize::from(!is_decided && took >= deadline);
    }
    assert!(decided <= MOST && waited <= MOST, "{decided} were decided, and {waited} waited in vain");
    assert!(decided + waited > 0, "nobody waited");
    setup.store.ready(PATIENCE).await.expect("it works again");
    assert!(setup.admits(&[("moving", quota)]).await);
}
