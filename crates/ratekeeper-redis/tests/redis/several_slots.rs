//! Requests over several slots of a cluster, of which one part denies or fails.

use std::time::Duration;

use ratekeeper_core::{Charge, DAY, Quota, RuleName, Store};
use ratekeeper_redis::{BreakerState, RedisStore, RedisStoreBuilder, Servers};
use ratekeeper_servers::Cluster;

use crate::support::{PATIENCE, calls, each, key_on, ready, rule};

fn start() -> Cluster {
    Cluster::start(3, 0).unwrap_or_else(|error| panic!("{error}"))
}

/// A store that by default remembers no denials, and so asks about everything.
fn of(cluster: &Cluster) -> RedisStoreBuilder {
    let servers = Servers::cluster(cluster.urls()).expect("the cluster has nodes");
    RedisStore::builder(servers).timeout(PATIENCE).denial_cache_ttl(Duration::ZERO)
}

/// How often the nodes were asked.
fn asked(cluster: &Cluster) -> u32 {
    cluster.nodes().iter().map(|node| calls(node, "evalsha").expect("it counts")).sum()
}

/// The part that admits is given back and so is not known, and a leaky bucket is only peeked at. Neither must
/// cause a call to the cluster for each denial.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_is_denied_from_memory() {
    let cluster = start();
    let store = ready(of(&cluster).denial_cache_ttl(DAY)).await;
    let (a, b) = (key_on(&cluster, 0), key_on(&cluster, 1));
    let wide = Quota::per_day(1_000_000);
    for tight in [Quota::per_day(1), Quota::leaky_bucket(1, DAY)] {
        let tight_rule = rule(tight.algorithm().name());
        let both = [Charge::new(tight_rule, &a, &tight), Charge::new(rule("wide"), &b, &wide)];
        assert!(store.charge(&both).await.expect("the store decides").is_admitted());
        let before = asked(&cluster);
        for _ in 0..1_000 {
            assert!(!store.charge(&both).await.expect("the store decides").is_admitted());
        }
        let asked = asked(&cluster) - before;
        assert!(asked < 100, "{tight}: {asked} calls for 1,000 denials");
    }
}

/// What one node has denied is denied, whether or not another answers, and whether or not its breaker is
/// open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denial_is_none_the_less_one_when_another_node_fails() {
    let cluster = start();
    for node in cluster.nodes() {
        // Otherwise the others would report that the cluster is down.
        node.command(&["CONFIG", "SET", "cluster-node-timeout", "60000"]).expect("it obeys");
    }
    let (a, b) = (key_on(&cluster, 0), key_on(&cluster, 1));
    let (tight, wide) = (Quota::per_day(1), Quota::per_day(1_000));
    for remembered in [Duration::ZERO, DAY] {
        let prefix = format!("remembered-{}", remembered.as_secs());
        let store = of(&cluster).timeout(Duration::from_millis(300)).prefix(prefix);
        let store = ready(store.denial_cache_ttl(remembered)).await;
        let both = [Charge::new(rule("wide"), &b, &wide), Charge::new(rule("tight"), &a, &tight)];
        assert!(store.charge(&both).await.expect("the store decides").is_admitted());
        cluster.node(1).pause().expect("it can be stopped");
        let mut answers = Vec::new();
        for _ in 0..30 {
            answers.push(store.charge(&both).await);
        }
        let (peeked, alone) = (store.peek(&both).await, store.charge(&both[..1]).await);
        cluster.node(1).resume().expect("it goes on");
        for denied in answers {
            let denied = denied.expect("it was denied, and not failed");
            assert_eq!(denied.denied_by().map(RuleName::as_str).collect::<Vec<_>>(), ["tight"]);
            let rules: Vec<_> = denied.outcomes().map(|(rule, _)| rule.as_str()).collect();
            assert_eq!(rules, ["wide", "tight"], "each rule has its place");
        }
        peeked.expect_err("who looks at a node that does not answer is told so");
        alone.expect_err("nobody else knows");
        store.ready(PATIENCE).await.expect("it works again");
    }
}

/// Requests that its rules let through although the store failed count for the rules that were decided.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_whose_node_works_is_enforced_while_the_node_of_another_fails() {
    const LIMIT: u32 = 10;
    let cluster = start();
    for node in cluster.nodes() {
        // Otherwise the others would report that the cluster is down.
        node.command(&["CONFIG", "SET", "cluster-node-timeout", "60000"]).expect("it obeys");
    }
    let store = ready(of(&cluster).timeout(Duration::from_millis(300))).await;
    let (a, b) = (key_on(&cluster, 0), key_on(&cluster, 1));
    let wide = Quota::per_day(1_000);
    cluster.node(1).pause().expect("it can be stopped");
    store.charge(&[Charge::new(rule("wide"), &b, &wide)]).await.expect_err("it does not answer");
    let mut states = store.watch_breaker();
    tokio::time::timeout(PATIENCE, states.wait_for(BreakerState::is_open))
        .await
        .expect("the breaker opens")
        .expect("there is one");
    let mut passed = Vec::new();
    for tight in each(LIMIT, 30 * DAY) {
        let tight_rule = rule(tight.algorithm().name());
        let both = [Charge::new(rule("wide"), &b, &wide), Charge::new(tight_rule, &a, &tight)];
        let mut failed = 0;
        let denied = loop {
            match store.charge(&both).await {
                Ok(denied) => break Some(denied),
                Err(_) if failed > 2 * LIMIT => break None,
                Err(_) => failed += 1,
            }
        };
        passed.push((tight_rule, failed, denied));
    }
    cluster.node(1).resume().expect("it goes on");
    for (tight, failed, denied) in passed {
        // On a busy machine the node that works may be late as well.
        assert!((LIMIT..=2 * LIMIT).contains(&failed), "{tight}: {failed}");
        let denied = denied.unwrap_or_else(|| panic!("{tight} was not enforced"));
        assert_eq!(denied.denied_by().collect::<Vec<_>>(), [tight]);
    }
}
