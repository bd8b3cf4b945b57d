//! Decisions on clusters of one, two and three masters.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ratekeeper_core::{Charge, Quota, RuleName, Store};
use ratekeeper_redis::{RedisStore, Servers};
use ratekeeper_servers::Cluster;

const IN_FLIGHT: usize = 512;
const TOTAL: usize = 100_000;
const ROUNDS: usize = 3;

/// Decisions per second, and the time that all masters together spent on each, in microseconds.
async fn measure(cluster: &Cluster, store: &RedisStore, keys: &Arc<Vec<String>>) -> (f64, f64) {
    let cpu = || cluster.nodes().iter().map(|node| node.cpu_used().expect("it tells")).sum::<Duration>();
    let (next, before, started) = (Arc::new(AtomicUsize::new(0)), cpu(), Instant::now());
    let tasks: Vec<_> = (0..IN_FLIGHT)
        .map(|_| {
            let (store, keys, next) = (store.clone(), Arc::clone(keys), Arc::clone(&next));
            tokio::spawn(async move {
                let quota = Quota::per_hour(100).burst(100_000_000);
                let rule = RuleName::new("r").expect("a name");
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= TOTAL {
                        return;
                    }
                    let charges = [Charge::new(rule, &keys[i % keys.len()], &quota)];
                    assert!(store.charge(&charges).await.expect("the store decides").is_admitted());
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("the task ends well");
    }
    let rate = TOTAL as f64 / started.elapsed().as_secs_f64();
    (rate, (cpu() - before).as_secs_f64() * 1e6 / TOTAL as f64)
}

#[tokio::main]
async fn main() {
    let keys: Arc<Vec<String>> = Arc::new((0..100_000).map(|i| format!("user:{i:08}")).collect());
    let mut clusters = Vec::new();
    for masters in 1..=3 {
        let cluster = Cluster::start(masters, 0).unwrap_or_else(|error| panic!("{error}"));
        let servers = Servers::cluster(cluster.urls()).expect("the cluster has nodes");
        let store = RedisStore::builder(servers).timeout(Duration::from_secs(5)).build().expect("a store");
        store.ready(Duration::from_secs(20)).await.expect("the cluster works");
        clusters.push((masters, cluster, store, Vec::new()));
    }
    for _ in 0..=ROUNDS {
        for (_, cluster, store, results) in &mut clusters {
            results.push(measure(cluster, store, &keys).await);
        }
    }
    println!("| masters | decisions a second | Redis CPU each, µs |");
    println!("|---|---|---|");
    for (masters, _, _, results) in &mut clusters {
        // The first round warms up.
        let mut rates: Vec<f64> = results[1..].iter().map(|(rate, _)| *rate).collect();
        let mut cpus: Vec<f64> = results[1..].iter().map(|(_, cpu)| *cpu).collect();
        rates.sort_by(f64::total_cmp);
        cpus.sort_by(f64::total_cmp);
        println!("| {masters} | {:.0} | {:.1} |", rates[ROUNDS / 2], cpus[ROUNDS / 2]);
    }
}
