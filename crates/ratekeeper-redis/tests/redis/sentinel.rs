//! Masters that are replaced while they still work. Whatever the former master counts from then on is lost.

use std::time::{Duration, Instant};

use ratekeeper_core::{Charge, DAY, Key, Quota, Store};
use ratekeeper_redis::{RedisStore, Servers};
use ratekeeper_servers::{RedisServer, Sentinels};

use crate::support::{PATIENCE, rule};

const QUOTA: Quota = Quota::fixed_window(1_000_000, DAY);

/// Sentinels that leave a former master alone for eight seconds, as they do by default: that is four times
/// the period.
fn start() -> Sentinels {
    let sentinels = Sentinels::start(1).unwrap_or_else(|error| panic!("{error}"));
    for sentinel in sentinels.sentinels() {
        sentinel.command(&["SENTINEL", "DEBUG", "publish-period", "2000"]).expect("it obeys");
    }
    sentinels.replication().wait_until_in_sync().expect("the replica follows");
    sentinels
}

fn store(sentinels: &Sentinels, connect_timeout: Duration) -> RedisStore {
    let servers = Servers::sentinel(sentinels.urls(), Sentinels::NAME, "redis://ignored").expect("addresses");
    let store = RedisStore::builder(servers).timeout(Duration::from_secs(2)).connect_timeout(connect_timeout);
    store.max_backoff(Duration::from_millis(50)).build().expect("the store can be made")
}

/// Charges a key that was never charged, and returns whether this server has counted it.
async fn counts_at(server: &RedisServer, store: &RedisStore, number: u64) -> bool {
    let key = Key::from(format!("caller-{number}"));
    if store.charge(&[Charge::new(rule("switch"), &key, &QUOTA)]).await.is_err() {
        return false;
    }
    let name = format!("ratekeeper:switch:{{caller-{number}}}");
    server.command(&["EXISTS", &name]).expect("it answers") == redis::Value::Int(1)
}

/// By plan, the former master works on until the sentinels demote it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_was_replaced_by_plan_is_left_at_once() {
    let sentinels = start();
    let store = store(&sentinels, PATIENCE);
    store.ready(PATIENCE).await.expect("the master works");
    let former = sentinels.master().expect("there is one");
    let next = sentinels.replication().replicas().first().expect("there is one");
    assert!(counts_at(former, &store, 0).await);
    sentinels.sentinels()[0].command(&["SENTINEL", "FAILOVER", Sentinels::NAME]).expect("it obeys");
    let named = |sentinel: &RedisServer| {
        let address = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Sentinels::NAME]);
        format!("{:?}", address.expect("it answers")).contains(&next.port().to_string())
    };
    let started = Instant::now();
    while !sentinels.sentinels().iter().any(named) {
        assert!(started.elapsed() < PATIENCE, "it is not replaced");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let switched = Instant::now();
    let mut number = 1;
    while !counts_at(next, &store, number).await {
        number += 1;
        assert!(switched.elapsed() < PATIENCE, "it is not left");
    }
    // On a busy machine. The sentinels demote the former master after eight seconds.
    assert!(switched.elapsed() < Duration::from_secs(4), "{:?}", switched.elapsed());
    assert!(counts_at(next, &store, number + 1).await, "and not returned to");
}

/// A master that hung, and resumes after it was replaced, still says that it is the master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_wakes_up_is_not_believed() {
    let sentinels = start();
    let former = sentinels.master().expect("there is one");
    former.pause().expect("it can be paused");
    // The sentinels still name it, and it accepts the connection, but does not answer.
    let store = store(&sentinels, 2 * PATIENCE);
    let next = sentinels.wait_for_failover(former).expect("there is another");
    former.resume().expect("it resumes");
    store.ready(PATIENCE).await.expect("the new master works");
    assert!(counts_at(next, &store, 0).await);
}
