//! A caller that was denied is denied again from memory: a flood costs Redis next to nothing, and no caller
//! is denied for longer.

use std::time::{Duration, Instant};

use ratekeeper_core::{
    Charge, DAY, Decision, Key, ManualClock, Quota, Receipt, Refund, Retry, SECOND, Store, Timestamp,
};
use ratekeeper_redis::RedisStore;
use ratekeeper_servers::{Mode, Proxy};

use crate::support::inspect::Inspector;
use crate::support::{PATIENCE, calls, each, own_server, patient, patient_at, ready, rule};

async fn charge(store: &RedisStore, charges: &[Charge<'_>]) -> Decision {
    store.charge(charges).await.expect("the store decides")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_asks_redis_once_a_second() {
    let server = own_server();
    let store = ready(patient(&server)).await;
    let mut inspector = Inspector::new(&server);
    for quota in each(3, 3_650 * DAY) {
        let rule = rule(quota.algorithm().name());
        let one = [Charge::new(rule, "mallory", &quota)];
        while charge(&store, &one).await.is_admitted() {}
        let (calls, started) = (inspector.calls("evalsha"), Instant::now());
        for _ in 0..20_000 {
            assert!(!charge(&store, &one).await.is_admitted(), "{quota}");
        }
        let (calls, seconds) = (inspector.calls("evalsha") - calls, started.elapsed().as_secs_f64());
        assert!(calls as f64 <= seconds + 1.0, "{quota}: {calls} calls in {seconds} s");
    }
}

/// Callers that arrive before the answer wait for it, and do not ask as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_many_callers_asks_redis_once_a_second() {
    let server = own_server();
    let proxy = Proxy::start(server.port()).expect("a proxy");
    let store = ready(patient_at(&server.url_with_port(proxy.port()))).await;
    // Far enough away that many arrive before the answer.
    proxy.set(Mode::delay(Duration::from_millis(10))).expect("it delays");
    let mut inspector = Inspector::new(&server);
    const OWN: Quota = Quota::per_day(1);
    const ALL: Quota = Quota::fixed_window(1_000_000, DAY);
    for rules in [1, 2] {
        let charges = |key| [Charge::new(rule("own"), key, &OWN), Charge::new(rule("all"), key, &ALL)];
        let key = ["mallory", "marvin"][rules - 1];
        while charge(&store, &charges(key)[..rules]).await.is_admitted() {}
        let (calls, started) = (inspector.calls("evalsha"), Instant::now());
        let flood = (0..64).map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                while started.elapsed() < Duration::from_millis(3_500) {
                    assert!(!charge(&store, &charges(key)[..rules]).await.is_admitted());
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            })
        });
        for caller in futures_util::future::join_all(flood).await {
            caller.expect("each is denied");
        }
        let (calls, seconds) = (inspector.calls("evalsha") - calls, started.elapsed().as_secs_f64());
        assert!(calls as f64 <= seconds + 1.0, "{rules} rules: {calls} calls in {seconds} s");
    }
}

/// Whoever waits for the answer to another's question waits for no longer than for its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_a_question_of_another_for_longer_than_for_its_own() {
    let server = own_server();
    let timeout = Duration::from_millis(500);
    let builder = patient(&server).timeout(timeout).denial_cache_ttl(Duration::from_millis(1));
    let store = ready(builder).await;
    let quota = Quota::per_day(1);
    let one = [Charge::new(rule("own"), "mallory", &quota)];
    while charge(&store, &one).await.is_admitted() {}
    server.pause().expect("it can be paused");
    tokio::time::sleep(Duration::from_millis(2)).await;
    let asked = Instant::now();
    // The first is not even looked at.
    let first = store.charge(&one);
    let second = store.charge(&one).await;
    assert!(
        second.is_err() && asked.elapsed() < timeout + Duration::from_millis(250),
        "{:?}",
        asked.elapsed()
    );
    drop(first);
    server.resume().expect("it resumes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_of_several_rules_is_denied_from_memory_too() {
    let server = own_server();
    let store = ready(patient(&server).denial_cache_ttl(DAY)).await;
    let mut inspector = Inspector::new(&server);
    let (tight, wide) = (Quota::sliding_log(1, DAY), Quota::per_day(100));
    let both = [Charge::new(rule("wide"), "mallory", &wide), Charge::new(rule("tight"), "mallory", &tight)];
    assert!(charge(&store, &both).await.is_admitted());
    let denied = charge(&store, &both).await;
    let calls = inspector.calls("evalsha");
    for _ in 0..1_000 {
        let again = charge(&store, &both).await;
        assert!(!again.is_admitted());
        assert_eq!(again.outcome("wide").expect("it was asked").remaining(), 99);
        assert!(again.retry().expect("denied").after() <= denied.retry().expect("denied").after());
    }
    assert_eq!(inspector.calls("evalsha"), calls);
    // The rule that did not deny is charged on its own as usual, and what is known of it is updated
    // afterwards.
    assert!(charge(&store, &both[..1]).await.is_admitted());
    assert_eq!(charge(&store, &both).await.outcome("wide").expect("it was asked").remaining(), 98);
}

/// Another caller that is admitted by a rule both share changes a counter that did not deny.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_denied_by_one_rule_is_so_from_memory_while_others_pass_the_second() {
    let server = own_server();
    let store = ready(patient(&server).denial_cache_ttl(DAY)).await;
    let mut inspector = Inspector::new(&server);
    let (own, all) = (Quota::per_day(1), Quota::fixed_window(1_000_000, 3_650 * DAY));
    let everybody = Charge::new(rule("all"), "everybody", &all);
    let mallory = [Charge::new(rule("own"), "mallory", &own), everybody];
    assert!(charge(&store, &mallory).await.is_admitted());
    assert!(!charge(&store, &mallory).await.is_admitted());
    let calls = inspector.calls("evalsha");
    for i in 0..100 {
        let key = Key::from(u64::from(i));
        assert!(charge(&store, &[Charge::new(rule("own"), &key, &own), everybody]).await.is_admitted());
        for _ in 0..3 {
            let denied = charge(&store, &mallory).await;
            assert!(!denied.is_admitted());
            assert_eq!(denied.outcome("all").expect("it was asked").remaining(), 1_000_000 - 2 - i);
        }
    }
    assert_eq!(inspector.calls("evalsha") - calls, 100, "none but the others' is asked");
}

/// Nor can a denied caller force calls to Redis, or push others out of memory, by naming a different key for
/// another rule each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_key_that_is_another_each_time_does_not_ask_redis() {
    let server = own_server();
    let store = ready(patient(&server).denial_cache_capacity(160).denial_cache_ttl(DAY)).await;
    let mut inspector = Inspector::new(&server);
    let (own, second) = (Quota::per_day(1), Quota::per_day(100));
    assert!(charge(&store, &[Charge::new(rule("own"), "mallory", &own)]).await.is_admitted());
    let calls = inspector.calls("evalsha");
    for i in 0..2_000_u64 {
        let key = Key::from(i);
        let both = [Charge::new(rule("own"), "mallory", &own), Charge::new(rule("second"), &key, &second)];
        let denied = charge(&store, &both).await;
        assert!(!denied.is_admitted());
        let names: Vec<_> = denied.outcomes().map(|(rule, _)| rule.as_str()).collect();
        assert_eq!(names, ["own", "second"]);
        assert_eq!(denied.outcome("second").expect("it was asked").remaining(), 100);
    }
    assert!(inspector.calls("evalsha") - calls < 20, "a few times, as long as it may be an honest caller");
    let bob = [Charge::new(rule("own"), "bob", &own)];
    assert!(charge(&store, &bob).await.is_admitted());
    assert!(!charge(&store, &bob).await.is_admitted());
    let calls = inspector.calls("evalsha");
    for _ in 0..200 {
        assert!(!charge(&store, &bob).await.is_admitted());
    }
    assert_eq!(inspector.calls("evalsha"), calls);
}

/// A caller that was denied once, and has been admitted repeatedly since, need not be remembered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_admitted_is_not_in_the_way_of_who_is_denied() {
    let clock = ManualClock::new(Timestamp::from_secs(1_700_000_000));
    let server = own_server();
    let store = ready(patient(&server).clock(clock.clone()).denial_cache_capacity(160)).await;
    let mut inspector = Inspector::new(&server);
    let quota = Quota::per_second(4).burst(1);
    let keys: Vec<Key> = (0..400_u64).map(Key::from).collect();
    for round in 0..10 {
        for key in &keys {
            let one = [Charge::new(rule("often"), key, &quota)];
            assert!(charge(&store, &one).await.is_admitted());
            assert!(round > 0 || !charge(&store, &one).await.is_admitted());
        }
        clock.advance(SECOND / 2);
    }
    let late: Vec<Key> = (1_000..1_020_u64).map(Key::from).collect();
    let tight = Quota::per_day(1);
    for key in &late {
        assert!(charge(&store, &[Charge::new(rule("late"), key, &tight)]).await.is_admitted());
    }
    let calls = inspector.calls("evalsha");
    for _ in 0..50 {
        for key in &late {
            assert!(!charge(&store, &[Charge::new(rule("late"), key, &tight)]).await.is_admitted());
        }
    }
    let calls = inspector.calls("evalsha") - calls;
    assert!(calls < 100, "{calls} calls for 1,000 denials");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_did_not_deny_tells_what_is_left() {
    let clock = ManualClock::new(Timestamp::from_secs(1_700_000_000));
    let server = own_server();
    let store = ready(patient(&server).clock(clock.clone()).denial_cache_ttl(DAY)).await;
    let (tight, log) = (Quota::per_day(1), Quota::sliding_log(10, 10 * SECOND));
    for _ in 0..4 {
        assert!(charge(&store, &[Charge::new(rule("log"), "mallory", &log)]).await.is_admitted());
        clock.advance(SECOND);
    }
    let both = [Charge::new(rule("tight"), "mallory", &tight), Charge::new(rule("log"), "mallory", &log)];
    assert!(charge(&store, &both).await.is_admitted());
    // The five expire at 10, 11, 12, 13 and 14 seconds.
    for (second, left) in [(5, 5), (9, 5), (10, 6), (12, 8), (13, 9), (14, 10), (20, 10)] {
        clock.set(Timestamp::from_secs(1_700_000_000 + second));
        let denied = charge(&store, &both).await;
        assert!(!denied.is_admitted());
        let outcome = denied.outcome("log").expect("it was asked");
        assert_eq!(outcome.remaining(), left, "after {second} s: {outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_smaller_cost_that_fits_passes() {
    let server = own_server();
    let store = ready(patient(&server).denial_cache_ttl(DAY)).await;
    let mut inspector = Inspector::new(&server);
    for quota in each(10, 3_650 * DAY) {
        let rule = rule(quota.algorithm().name());
        let cost = |cost| [Charge::new(rule, "alice", &quota).cost(cost)];
        assert!(charge(&store, &cost(6)).await.is_admitted(), "{quota}");
        for denied in [9, 7, 5, 11, u32::MAX] {
            assert!(!charge(&store, &cost(denied)).await.is_admitted(), "{quota}: {denied}");
        }
        let calls = inspector.calls("evalsha");
        let never = charge(&store, &cost(11)).await;
        assert_eq!(never.retry(), Some(Retry::Never), "{quota}");
        assert!(!charge(&store, &cost(5)).await.is_admitted(), "{quota}");
        assert_eq!(inspector.calls("evalsha"), calls, "{quota}: these are known");
        assert!(charge(&store, &cost(3)).await.is_admitted(), "{quota}");
        assert!(!charge(&store, &cost(2)).await.is_admitted(), "{quota}");
        assert!(charge(&store, &cost(1)).await.is_admitted(), "{quota}");
        assert!(!charge(&store, &cost(1)).await.is_admitted(), "{quota}");
    }
}

/// For a log it is unknown how much longer a larger cost waits than the one that was denied. Redis is asked,
/// but not each time.
#[tokio::test]
async fn a_cost_that_rises_does_not_ask_redis_each_time() {
    let server = own_server();
    let store = ready(patient(&server)).await;
    for quota in [Quota::sliding_log(500, DAY), Quota::sliding_window(500, DAY)] {
        let rule = rule(quota.algorithm().name());
        for cost in [100, 399, 1] {
            let charged = charge(&store, &[Charge::new(rule, "mallory", &quota).cost(cost)]).await;
            assert!(charged.is_admitted());
        }
        let before = calls(&server, "evalsha").expect("the server tells");
        let start = Instant::now();
        for cost in 1..=500 {
            let denied = charge(&store, &[Charge::new(rule, "mallory", &quota).cost(cost)]).await;
            assert!(denied.retry().is_some_and(|retry| retry.after().is_some()), "{quota}: {denied:?}");
        }
        let never = charge(&store, &[Charge::new(rule, "mallory", &quota).cost(501)]).await;
        assert_eq!(never.retry(), Some(Retry::Never));
        let questions = calls(&server, "evalsha").expect("the server tells") - before;
        let seconds = start.elapsed().as_secs() as u32 + 1;
        assert!(questions <= 20 * seconds, "{quota}: {questions} in {seconds} s");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_keys_are_remembered_than_were_asked_for() {
    let server = own_server();
    let mut inspector = Inspector::new(&server);
    let quota = Quota::per_day(1);
    for most in [160, 0] {
        let store =
            patient(&server).prefix(format!("most-{most}")).denial_cache_capacity(most).denial_cache_ttl(DAY);
        let store = ready(store).await;
        let keys: Vec<Key> = (0..1_000_u64).map(Key::from).collect();
        for key in &keys {
            assert!(charge(&store, &[Charge::new(rule("many"), key, &quota)]).await.is_admitted());
            assert!(!charge(&store, &[Charge::new(rule("many"), key, &quota)]).await.is_admitted());
        }
        let calls = inspector.calls("evalsha");
        for key in &keys {
            assert!(!charge(&store, &[Charge::new(rule("many"), key, &quota)]).await.is_admitted());
        }
        assert_eq!(inspector.calls("evalsha") - calls, 1_000 - most as u64);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refunds_resets_and_new_quotas_ask_redis_again() {
    let server = own_server();
    let store = ready(patient(&server).denial_cache_ttl(DAY)).await;
    let mut inspector = Inspector::new(&server);
    let quota = Quota::sliding_log(2, DAY);
    let one = [Charge::new(rule("one"), "alice", &quota)];
    let first = charge(&store, &one).await;
    let receipt = Receipt::of(&first, rule("one")).expect("it was admitted");
    while charge(&store, &one).await.is_admitted() {}

    store.refund(&[Refund::new(rule("one"), "alice", 1).receipt(receipt)]).await.expect("it is given back");
    assert!(charge(&store, &one).await.is_admitted());
    assert!(!charge(&store, &one).await.is_admitted());
    store.reset(rule("one"), "alice".into()).await.expect("it is forgotten");
    assert!(charge(&store, &one).await.is_admitted());
    while charge(&store, &one).await.is_admitted() {}

    // Even a quota that denies as well is asked for, because it might not.
    let calls = inspector.calls("evalsha");
    let smaller = Quota::sliding_log(1, DAY);
    assert!(!charge(&store, &[Charge::new(rule("one"), "alice", &smaller)]).await.is_admitted());
    assert_eq!(inspector.calls("evalsha"), calls + 1);
    let larger = Quota::sliding_log(3, DAY);
    assert!(charge(&store, &[Charge::new(rule("one"), "alice", &larger)]).await.is_admitted());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_denied_for_longer_than_by_redis() {
    let server = own_server();
    let store = ready(patient(&server).denial_cache_ttl(DAY)).await;
    let mut inspector = Inspector::new(&server);
    let mut from_memory = 0;
    for quota in each(4, Duration::from_millis(80)) {
        let rule = rule(quota.algorithm().name());
        for cost in [1, 2, 4] {
            let charges = [Charge::new(rule, "alice", &quota).cost(cost)];
            let mut ready_at = None;
            let (started, mut admitted) = (Instant::now(), 0);
            while admitted < 4 {
                assert!(started.elapsed() < PATIENCE, "{quota}");
                let (before, calls) = (inspector.server_time(), inspector.calls("evalsha"));
                let decision = charge(&store, &charges).await;
                from_memory += u64::from(inspector.calls("evalsha") == calls);
                if let Some(Retry::After(wait)) = decision.retry() {
                    // No other caller interferes, so each denial names the same moment, however it was made.
                    let tells = decision.at().saturating_add(wait);
                    let ready_at = *ready_at.get_or_insert(tells);
                    assert!(
                        tells.as_micros().abs_diff(ready_at.as_micros()) <= 1_000,
                        "{quota}: {ready_at}, {tells}"
                    );
                    assert!(before < ready_at, "{quota}: denied at {before}, though {ready_at} was told");
                } else {
                    admitted += 1;
                    ready_at = None;
                }
            }
        }
    }
    assert!(from_memory > 100, "{from_memory}");
}
