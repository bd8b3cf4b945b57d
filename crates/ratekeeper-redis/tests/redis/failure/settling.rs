//! Refunds and debits: kept while Redis fails, made once, and together.

use std::time::{Duration, Instant};

use ratekeeper_core::{Charge, DAY, Debit, Key, Quota, Receipt, Refund, Store, StoreError};
use ratekeeper_redis::RedisStore;
use ratekeeper_servers::{Mode, Proxy, RedisServer, wait};

use super::client::until_counted;
use super::tally::Caller;
use super::{changed, hasty, opened, ready, server, story, watched};
use crate::support::{PATIENCE, calls, patient, rule};

struct Setup {
    _server: RedisServer,
    proxy: Proxy,
    /// Connects through the proxy.
    store: RedisStore,
    /// Connects directly.
    direct: RedisStore,
}

impl Setup {
    async fn new(max_waiting: usize) -> Self {
        let server = server();
        let proxy = Proxy::start(server.port()).expect("a proxy");
        let url = server.url_with_port(proxy.port());
        let store = hasty(&url).max_waiting(max_waiting).build().expect("the store can be made");
        let direct = hasty(&server.url()).timeout(PATIENCE).build().expect("the store can be made");
        for store in [&store, &direct] {
            store.ready(PATIENCE).await.expect("the server works");
        }
        Self { _server: server, proxy, store, direct }
    }

    async fn lose_redis(&self) {
        self.proxy.set(Mode::Refuse).expect("it obeys");
        self.proxy.drop_connections().expect("it obeys");
        // The failure is noticed only when something is asked.
        Caller::new("first").charge(&self.store).await.expect_err("nobody answers");
        opened(&self.store).await;
    }

    async fn find_redis(&self) {
        self.proxy.set(Mode::Pass).expect("it obeys");
        self.store.ready(PATIENCE).await.expect("it is back");
    }

    async fn debit(&self, caller: &Caller, cost: u32) -> Result<(), StoreError> {
        self.store.debit(&[Debit::new(caller.charge_of().cost(cost))]).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_to_be_settled_is_kept_until_redis_is_back() {
    let setup = Setup::new(10_000).await;
    let (caller, other) = (Caller::new("kept"), Caller::new("new"));
    let decision = setup.store.charge(&[caller.charge_of().cost(100)]).await.expect("it is decided");
    let receipt = Receipt::of(&decision, rule("failure")).expect("it was admitted");
    setup.lose_redis().await;
    // No call waits for a Redis that is known to fail.
    let told = setup.debit(&caller, 7).await.expect_err("it is not done yet");
    assert!(!story(&told).is_empty());
    drop(setup.store.debit(&[Debit::new(other.charge_of().cost(5))]));
    let refund = Refund::new(caller.charge_of().rule, caller.charge_of().key, 40).receipt(receipt);
    setup.store.refund(&[refund]).await.expect_err("it is not done yet");
    assert_eq!((caller.counted(&setup.direct).await, other.counted(&setup.direct).await), (100, 0));
    setup.find_redis().await;
    until_counted(&setup.direct, &caller, 100 + 7 - 40).await;
    until_counted(&setup.direct, &other, 5).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_so_much_is_kept() {
    let setup = Setup::new(10).await;
    let caller = Caller::new("bounded");
    setup.lose_redis().await;
    let mut refused = 0;
    for _ in 0..15 {
        let error = setup.debit(&caller, 1).await.expect_err("it is not done yet");
        refused += u32::from(story(&error).contains("too many refunds and debits wait"));
    }
    assert_eq!(refused, 5);
    setup.find_redis().await;
    until_counted(&setup.direct, &caller, 10).await;
    // There is room again.
    setup.debit(&caller, 1).await.expect("it is done");
    assert_eq!(caller.counted(&setup.direct).await, 11);
}

/// It was made, but the answer was lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_have_been_settled_is_not_settled_again() {
    let setup = Setup::new(10_000).await;
    let caller = Caller::new("once");
    for round in 1..=5 {
        setup.proxy.set(Mode::LoseReplies).expect("it obeys");
        let breaker = watched(&setup.store);
        drop(setup.debit(&caller, 1).await.expect_err("nobody answers"));
        changed(breaker).await;
        setup.proxy.set(Mode::Pass).expect("it obeys");
        setup.proxy.drop_connections().expect("it obeys");
        // What is handed over later is done later.
        let done = async {
            while setup.debit(&caller, 0).await.is_err() || setup.debit(&caller, 10).await.is_err() {}
        };
        tokio::time::timeout(PATIENCE, done).await.expect("it is back");
        let counted = caller.counted(&setup.direct).await;
        assert_eq!(counted % 10, round, "{counted}");
    }
}

/// A lost connection is not noticed before it is used. That must not lose what is settled much later than it
/// was charged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sent_after_a_while_does_not_go_into_a_connection_that_is_gone() {
    let setup = Setup::new(10_000).await;
    let caller = Caller::new("slow");
    assert!(caller.charge(&setup.store).await.expect("it is decided").is_admitted());
    for round in 1..=5 {
        setup.proxy.drop_connections().expect("it obeys");
        // Long enough that the store has to check whether Redis is there.
        tokio::time::sleep(Duration::from_millis(150)).await;
        drop(setup.store.debit(&[Debit::new(caller.charge_of())]));
        until_counted(&setup.direct, &caller, 1 + round).await;
        setup.store.ready(PATIENCE).await.expect("it is back");
    }
}

/// Redis reports that it has done nothing: then it is done when Redis works again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_redis_refuses_is_tried_again() {
    let server = server();
    let store = ready(&server.url()).await;
    let caller = Caller::new("refused");
    store.debit(&[Debit::new(caller.charge_of())]).await.expect("it is done");
    server.command(&["REPLICAOF", "127.0.0.1", "1"]).expect("it obeys");
    let breaker = watched(&store);
    store.debit(&[Debit::new(caller.charge_of().cost(2))]).await.expect_err("it only reads");
    changed(breaker).await;
    server.command(&["REPLICAOF", "NO", "ONE"]).expect("it obeys");
    until_counted(&store, &caller, 3).await;
}

/// Makes Redis refuse a charge while a refund is under way. The answer to the refund tells what happened to
/// it: it was refused as well, and is made when Redis works again.
async fn under_way_when_a_charge_is_refused(refuse: &[&str], work: &[&str]) {
    let server = server();
    let proxy = Proxy::start(server.port()).expect("a proxy");
    let store = hasty(&server.url_with_port(proxy.port())).timeout(PATIENCE);
    let store = store.build().expect("the store can be made");
    store.ready(PATIENCE).await.expect("the server works");
    let (caller, other) = (Caller::new("refunded"), Caller::new("refused"));
    let sent = || proxy.counts().request_bytes;
    let more_than = |before, limit| {
        let more = || if sent() > before { Ok(()) } else { Err("nothing was sent") };
        tokio::task::block_in_place(|| wait::until("something to be under way", limit, more))
    };
    let (mut expected, deadline) = (0, Instant::now() + PATIENCE);
    loop {
        let decision = store.charge(&[caller.charge_of().cost(10)]).await.expect("it is decided");
        let receipt = Receipt::of(&decision, rule("failure")).expect("it was admitted");
        server.command(refuse).expect("it obeys");
        server.pause().expect("it can be stopped");
        let before = sent();
        let charging = store.charge(&[other.charge_of()]);
        more_than(before, PATIENCE).expect("it is sent");
        let before = sent();
        let refund = [Refund::new(caller.charge_of().rule, caller.charge_of().key, 4).receipt(receipt)];
        let refunding = store.refund(&refund);
        // If the machine was so busy that the store first has to check whether Redis is there, it was not
        // sent.
        let under_way = more_than(before, Duration::from_millis(100)).is_ok();
        server.resume().expect("it goes on");
        charging.await.expect_err("it is refused");
        refunding.await.expect_err("it is not done yet");
        server.command(work).expect("it obeys");
        expected += 10 - 4;
        until_counted(&store, &caller, expected).await;
        if under_way {
            break;
        }
        assert!(Instant::now() < deadline, "no refund was ever under way");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_under_way_when_memory_is_full_is_not_lost() {
    let refuse = ["CONFIG", "SET", "maxmemory", "1"];
    under_way_when_a_charge_is_refused(&refuse, &["CONFIG", "SET", "maxmemory", "0"]).await;
}

/// The connection is abandoned, because another server may be the master; but not before all answers have
/// arrived.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_under_way_to_a_master_that_is_none_any_more_is_not_lost() {
    let refuse = ["REPLICAOF", "127.0.0.1", "1"];
    under_way_when_a_charge_is_refused(&refuse, &["REPLICAOF", "NO", "ONE"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settlements_that_wait_share_a_call() {
    const KEYS: u64 = 100;
    const EACH: u32 = 20;
    let server = server();
    let store = crate::support::ready(patient(&server)).await;
    let quota = Quota::fixed_window(1_000_000, 30 * DAY);
    let keys: Vec<Key> = (0..KEYS).map(Key::from).collect();
    let charge = |key| Charge::new(rule("crowd"), key, &quota);
    let before = calls(&server, "evalsha").expect("it counts");
    for _ in 0..EACH {
        for key in &keys {
            drop(store.debit(&[Debit::new(charge(key).cost(3))]));
            drop(store.refund(&[Refund::new(rule("crowd"), key, 2)]));
        }
    }
    // What is handed over later is done later.
    store.refund(&[Refund::new(rule("crowd"), &keys[0], 0)]).await.expect("it is done");
    let spent = calls(&server, "evalsha").expect("it counts") - before;
    let settlements = 2 * EACH * KEYS as u32;
    assert!(spent <= settlements / 16, "{spent} calls for {settlements} settlements");
    for key in &keys {
        let peeked = store.peek(&[charge(key)]).await.expect("it answers");
        assert_eq!(
            peeked.outcome("crowd").map(|outcome| 1_000_000 - outcome.remaining()),
            Some(EACH),
            "{key}"
        );
    }
}

/// A store that is dropped with something to settle settles it first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_dropped_settles_first() {
    let server = server();
    let direct = ready(&server.url()).await;
    let caller = Caller::new("last");
    let store = ready(&server.url()).await;
    for _ in 0..100 {
        drop(store.debit(&[Debit::new(caller.charge_of())]));
    }
    drop(store);
    until_counted(&direct, &caller, 100).await;
}

/// An intermediary may answer in place of a Redis that has done it. Only Redis can say that it has not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_somebody_else_says_has_failed_is_not_settled_again() {
    let setup = Setup::new(10_000).await;
    for error in ["ERR upstream failure", "ERR Error running script: timeout", "BACKEND gone", "-"] {
        let caller = Caller::new(error);
        setup.direct.debit(&[Debit::new(caller.charge_of().cost(10))]).await.expect("it is done");
        setup.proxy.set(Mode::Replace(format!("-{error}\r\n").into_bytes())).expect("it obeys");
        let breaker = watched(&setup.store);
        setup.debit(&caller, 3).await.expect_err("it is not known to be done");
        changed(breaker).await;
        setup.find_redis().await;
        // What is handed over later is done later.
        while setup.debit(&caller, 0).await.is_err() || setup.debit(&caller, 100).await.is_err() {}
        assert_eq!(caller.counted(&setup.direct).await % 100, 13, "{error}");
    }
}
