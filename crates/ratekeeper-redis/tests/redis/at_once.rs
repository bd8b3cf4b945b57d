//! Exact under concurrency, on the server's own time, with many connections and many processes.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use ratekeeper_core::{Charge, DAY, Decision, Key, Quota, Retry, RuleName, Store};
use ratekeeper_redis::RedisStore;

use crate::support::{each, patient, patient_at, ready, rule, shared_server};

/// So long that nothing comes back while a test runs, and that no window ends before 2029.
const PERIOD: Duration = Duration::from_secs(3_650 * 86_400);

/// Stores on the shared server, each with its own connection; every other one denies from memory.
async fn fleet(nodes: usize, prefix: &str) -> Vec<RedisStore> {
    let node = |i: usize| {
        let denial_cache_ttl = Duration::from_secs(i as u64 % 2);
        ready(patient(shared_server()).prefix(prefix).denial_cache_ttl(denial_cache_ttl))
    };
    join_all((0..nodes).map(node)).await
}

/// What a task charges each time: rule, key, quota and cost.
type Charges = Vec<(RuleName, Key, Quota, u32)>;

/// Charges from many tasks at once, each on one of the stores, and returns how many requests of each task
/// were admitted.
async fn storm(
    stores: &[RedisStore],
    tasks: usize,
    times: usize,
    charges: impl Fn(usize) -> Charges,
) -> Vec<u32> {
    let tasks = (0..tasks).map(|task| {
        let (store, charges) = (stores[task % stores.len()].clone(), charges(task));
        let task = tokio::spawn(async move {
            let charges: Vec<_> = charges
                .iter()
                .map(|(rule, key, quota, cost)| Charge::new(*rule, key, quota).cost(*cost))
                .collect();
            let answers: Vec<_> = (0..times).map(|_| store.charge(&charges).into_future()).collect();
            let decisions =
                join_all(answers).await.into_iter().map(|answer| answer.expect("the store decides"));
            decisions.filter(Decision::is_admitted).count() as u32
        });
        async { task.await.expect("no task panics") }
    });
    join_all(tasks.collect::<Vec<_>>()).await
}

async fn remaining(store: &RedisStore, rule: RuleName, key: &Key, quota: &Quota) -> u32 {
    let peeked = store.peek(&[Charge::new(rule, key, quota)]).await.expect("the store decides");
    peeked.outcome(rule.as_str()).expect("it was asked").remaining()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_connections_admit_precisely_the_limit() {
    let stores = fleet(6, "connections").await;
    for quota in each(100, PERIOD) {
        let rule = rule(quota.algorithm().name());
        // Three keys, so that requests about different keys share calls as well.
        let keys = [Key::from("a"), Key::from("b"), Key::from("c")];
        let admitted = storm(&stores, 36, 12, |task| vec![(rule, keys[task % 3], quota, 1)]).await;
        for (i, key) in keys.iter().enumerate() {
            let total: u32 = admitted.iter().skip(i).step_by(3).sum();
            assert_eq!(total, 100, "{quota}");
            assert_eq!(remaining(&stores[0], rule, key, &quota).await, 0, "{quota}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mixed_costs_leave_less_than_the_smallest_that_was_denied() {
    let stores = fleet(4, "costs").await;
    for quota in each(1_000, PERIOD) {
        let rule = rule(quota.algorithm().name());
        let costs = [1, 7, 30, 113];
        let admitted = storm(&stores, 24, 6, |task| vec![(rule, Key::GLOBAL, quota, costs[task % 4])]).await;
        let total: u32 = admitted.iter().enumerate().map(|(task, admitted)| admitted * costs[task % 4]).sum();
        let left = remaining(&stores[0], rule, &Key::GLOBAL, &quota).await;
        assert_eq!(total + left, 1_000, "{quota}: nothing is lost, and nothing counted twice");
        for (i, cost) in costs.iter().enumerate() {
            let all = admitted.iter().skip(i).step_by(4).all(|admitted| *admitted == 6);
            assert!(all || left < *cost, "{quota}: {cost} was denied, and {left} are left");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_three_rules_are_charged_to_all_or_to_none() {
    let stores = fleet(5, "three").await;
    for (i, tight) in each(40, PERIOD).into_iter().enumerate() {
        let (wide, own) = (each(1_000, PERIOD)[(i + 1) % 5], each(25, PERIOD)[(i + 2) % 5]);
        let names = [("tight", i), ("wide", i), ("own", i)].map(|(name, i)| rule(&format!("{name}-{i}")));
        let keys = [Key::from("a"), Key::from("b")];
        let charges = |task: usize| {
            let mut charges = vec![
                (names[0], Key::GLOBAL, tight, 1),
                (names[1], Key::GLOBAL, wide, 2),
                (names[2], keys[task % 2], own, 1),
            ];
            charges.rotate_left(task % 3);
            charges
        };
        let admitted = storm(&stores, 30, 6, charges).await;
        let total: u32 = admitted.iter().sum();
        assert_eq!(total, 40, "{tight}, {wide}, {own}");
        assert_eq!(remaining(&stores[0], names[0], &Key::GLOBAL, &tight).await, 0, "{tight}");
        assert_eq!(remaining(&stores[0], names[1], &Key::GLOBAL, &wide).await, 1_000 - 2 * 40, "{wide}");
        for (i, key) in keys.iter().enumerate() {
            let charged: u32 = admitted.iter().skip(i).step_by(2).sum();
            assert_eq!(remaining(&stores[0], names[2], key, &own).await, 25 - charged, "{own}");
        }
    }
}

/// A fleet of which half has a new quota. What windows and logs have counted stays counted under a smaller
/// limit, so in total no more than the larger one is admitted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_with_two_limits_admits_no_more_than_the_larger() {
    let stores = fleet(4, "two").await;
    for (old, new) in each(50, PERIOD).into_iter().zip(each(80, PERIOD)).skip(1).take(3) {
        let rule = rule(old.algorithm().name());
        let quotas = [old, new];
        let admitted = storm(&stores, 16, 20, |task| vec![(rule, Key::GLOBAL, quotas[task % 2], 1)]).await;
        assert_eq!(admitted.iter().sum::<u32>(), 80, "{old} and {new}");
        assert!(admitted.iter().step_by(2).sum::<u32>() <= 50, "{old} and {new}");
    }
}

/// A fleet of which half counts with another algorithm does not fail, and no caller is locked out for longer
/// than a full refill.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_with_two_quotas_of_any_kind_never_fails() {
    let stores = fleet(4, "kinds").await;
    for (i, old) in each(50, PERIOD).into_iter().enumerate() {
        for (j, new) in each(80, DAY).into_iter().enumerate() {
            let (rule, quotas) = (rule(&format!("{i}-{j}")), [old, new]);
            let admitted = storm(&stores, 8, 12, |task| vec![(rule, Key::GLOBAL, quotas[task % 2], 1)]).await;
            assert!(admitted.iter().sum::<u32>() >= 50, "{old} and {new}: {admitted:?}");
            for quota in quotas {
                let charge = [Charge::new(rule, &Key::GLOBAL, &quota).cost(quota.max())];
                let denied = stores[0].charge(&charge).await.expect("the store decides");
                let Some(Retry::After(wait)) = denied.retry() else { panic!("{old} and {new}: {denied:?}") };
                assert!(wait <= quota.full_refill(), "{old} and {new}: {denied:?}");
            }
        }
    }
}

const FLEET: &str = "RATEKEEPER_TEST_FLEET";

/// Not a test by itself: this runs in each process of the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_of_a_fleet() {
    let Ok(url) = std::env::var(FLEET) else { return };
    let store = Arc::new(ready(patient_at(&url).prefix("processes")).await);
    println!("ready");
    let go = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    go.await.expect("no panic").expect("the test says when");
    for quota in each(10, PERIOD) {
        let rule = rule(quota.algorithm().name());
        let admitted = storm(&[(*store).clone()], 10, 5, |_| vec![(rule, Key::GLOBAL, quota, 1)]).await;
        println!("admitted {}", admitted.iter().sum::<u32>());
    }
}

/// A process that ends with the test.
struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn two_hundred_requests_of_four_processes_admit_precisely_ten() {
    let url = shared_server().url();
    let mut nodes: Vec<_> = (0..4)
        .map(|_| {
            let mut command = Command::new(std::env::current_exe().expect("this is a program"));
            command.args(["at_once::one_process_of_a_fleet", "--exact", "--nocapture"]).env(FLEET, &url);
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
            let said = BufReader::new(child.stdout.take().expect("it is piped")).lines();
            (Node(child), said.map(|line| line.expect("it says text")))
        })
        .collect();
    for (_, said) in &mut nodes {
        assert!(said.any(|line| line.ends_with("ready")), "a process did not come so far");
    }
    for (node, _) in &mut nodes {
        writeln!(node.0.stdin.as_mut().expect("it is piped"), "go").expect("it listens");
    }
    let mut totals = [0; 5];
    for (_, said) in &mut nodes {
        let mut admitted = said.filter_map(|line| line.strip_prefix("admitted ")?.parse::<u32>().ok());
        for total in &mut totals {
            *total += admitted.next().expect("each process tells what was admitted");
        }
    }
    assert_eq!(totals, [10; 5]);
}
