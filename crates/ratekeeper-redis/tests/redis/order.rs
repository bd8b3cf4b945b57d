//! What is settled comes before what is asked afterwards.

use std::time::Duration;

use ratekeeper_core::{Charge, DAY, Debit, Key, Quota, Refund, Store};
use ratekeeper_redis::{RedisStore, Servers};
use ratekeeper_servers::{Mode, Proxy};

use crate::support::{PATIENCE, own_server, patient, ready, rule};

const ONCE: Quota = Quota::fixed_window(1, DAY);

/// After this long without an answer from Redis, the store checks that Redis is there before it settles
/// anything.
const QUIET: Duration = Duration::from_millis(150);

async fn is_admitted(store: &RedisStore, key: &Key) -> bool {
    store.charge(&[Charge::new(rule("order"), key, &ONCE)]).await.expect("the store decides").is_admitted()
}

#[tokio::test]
async fn whoever_gives_back_and_asks_again_finds_what_it_gave_back() {
    let server = own_server();
    let store = ready(patient(&server)).await;
    for pause in [Duration::ZERO, QUIET] {
        let key = Key::from(pause.as_millis() as u64);
        assert!(is_admitted(&store, &key).await);
        tokio::time::sleep(pause).await;
        // Handed over, and not awaited.
        drop(store.refund(&[Refund::new(rule("order"), &key, 1)]));
        assert!(is_admitted(&store, &key).await, "after {pause:?}");
        assert!(!is_admitted(&store, &key).await);
    }
}

#[tokio::test]
async fn whoever_has_to_pay_more_pays_before_it_is_admitted_again() {
    let server = own_server();
    let store = ready(patient(&server)).await;
    for pause in [Duration::ZERO, QUIET] {
        let key = Key::from(pause.as_millis() as u64);
        // So that an answer from Redis was seen.
        assert!(is_admitted(&store, &Key::from(("other", pause.as_millis() as u64))).await);
        tokio::time::sleep(pause).await;
        drop(store.debit(&[Debit::new(Charge::new(rule("order"), &key, &ONCE))]));
        assert!(!is_admitted(&store, &key).await, "after {pause:?}");
    }
}

/// Only one go settles at a time, and a request about what the next one settles waits for that.
#[tokio::test]
async fn what_is_settled_while_something_else_is_settled_comes_first_as_well() {
    let server = own_server();
    let store = ready(patient(&server)).await;
    for i in 0..200_u64 {
        let (key, other) = (Key::from(i), Key::from(("other", i)));
        assert!(is_admitted(&store, &key).await);
        drop(store.refund(&[Refund::new(rule("order"), &other, 1)]));
        // The other refund is under way by now, or is sent along with this one.
        tokio::task::yield_now().await;
        drop(store.refund(&[Refund::new(rule("order"), &key, 1)]));
        assert!(is_admitted(&store, &key).await, "{i}");
    }
}

/// No request waits for what others have settled.
#[tokio::test]
async fn others_are_not_kept_waiting_by_what_is_settled() {
    let server = own_server();
    let store = ready(patient(&server)).await;
    tokio::time::sleep(QUIET).await;
    let (mine, others) = (Key::from("mine"), Key::from("others"));
    drop(store.refund(&[Refund::new(rule("order"), &others, 1)]));
    let (first, second) = tokio::join!(is_admitted(&store, &others), is_admitted(&store, &mine));
    assert!(first && second);
}

/// No request fails for the sake of the order: where latency is high, it is sent immediately.
#[tokio::test]
async fn who_has_no_time_to_wait_for_what_is_settled_goes_at_once() {
    let server = own_server();
    let proxy = Proxy::start(server.port()).expect("a proxy");
    let url = format!("redis://127.0.0.1:{}", proxy.port());
    for each_way in [20, 100, 180] {
        proxy.set(Mode::Pass).expect("the proxy passes all");
        let timeout = Duration::from_millis(600);
        let builder = RedisStore::builder(Servers::one(url.as_str()).expect("an address"));
        let store = ready(builder.timeout(timeout).connect_timeout(PATIENCE)).await;
        proxy.set(Mode::delay(Duration::from_millis(each_way))).expect("the proxy delays");
        // The store learns from answers what is usual.
        for i in 0..8_u64 {
            assert!(is_admitted(&store, &Key::from((each_way, i))).await);
        }
        for i in 0..2_u64 {
            let key = Key::from((each_way, i));
            tokio::time::sleep(QUIET).await;
            drop(store.refund(&[Refund::new(rule("order"), &key, 1)]));
            let charge = [Charge::new(rule("order"), &key, &ONCE)];
            assert!(store.charge(&charge).await.is_ok(), "{each_way} ms");
        }
    }
}

/// Nor when many settle all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_whose_charges_are_all_given_back_is_answered() {
    let server = own_server();
    let store = ready(patient(&server)).await;
    let quota = Quota::per_second(1_000_000);
    let callers = (0..256_u64).map(|i| {
        let store = store.clone();
        tokio::spawn(async move {
            let key = Key::from(i % 4);
            for _ in 0..40 {
                let charge = [Charge::new(rule("crowd"), &key, &quota)];
                assert!(store.charge(&charge).await.expect("the store decides").is_admitted());
                drop(store.refund(&[Refund::new(rule("crowd"), &key, 1)]));
            }
        })
    });
    for caller in futures_util::future::join_all(callers).await {
        caller.expect("all are answered");
    }
}
