//! How much the in-memory store holds, and which keys it evicts.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ratekeeper_core::{
    Charge, Clock, DAY, HOUR, Key, MINUTE, ManualClock, MemoryStore, Outcome, Quota, Refund, RuleName,
    SECOND, Store, Timestamp,
};

fn store(max_keys: usize) -> (MemoryStore<ManualClock>, ManualClock) {
    let clock = ManualClock::new(Timestamp::from_secs(1_700_000_040));
    (MemoryStore::builder().max_keys(max_keys).clock(clock.clone()).build(), clock)
}

fn rule(name: &str) -> RuleName {
    RuleName::new(name).expect("it is a name")
}

fn each(limit: u32) -> [Quota; 5] {
    [
        Quota::token_bucket(limit, MINUTE),
        Quota::fixed_window(limit, MINUTE),
        Quota::sliding_window(limit, MINUTE),
        Quota::sliding_log(limit, MINUTE),
        Quota::leaky_bucket(limit, MINUTE),
    ]
}

#[test]
fn a_store_never_holds_more_keys_than_it_may() {
    for max_keys in [1, 2, 3, 10, 1_000, 1_023, 1_500, 5_000] {
        let (store, _) = store(max_keys);
        for i in 0..3 * max_keys as u64 + 100 {
            let quota = each(5)[i as usize % 5];
            assert!(store.decide(&[Charge::new(rule("flood"), &Key::from(i), &quota)]).is_admitted());
            assert!(store.len() <= max_keys || i % 64 != 0);
        }
        assert!(store.len() <= max_keys, "{} of {max_keys}", store.len());
        // Shards fill unevenly, but most of the room is used.
        assert!(store.len() * 10 >= max_keys * 8, "{} of {max_keys}", store.len());
        assert!(store.evicted() > 0);
    }
}

#[test]
fn threads_that_flood_a_store_together_keep_the_bound() {
    let (store, _) = store(2_000);
    let most = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (store, most) = (&store, &most);
            scope.spawn(move || {
                let quotas = each(5);
                for i in 0..10_000_u64 {
                    let (a, b) = (Key::from((thread, i)), Key::from((i, thread)));
                    let [one, two] = [quotas[i as usize % 5], quotas[(i as usize + 1) % 5]];
                    store.decide(&[
                        Charge::new(rule("flood"), &a, &one),
                        Charge::new(rule("other"), &b, &two),
                    ]);
                    if i % 500 == 0 {
                        most.fetch_max(store.len(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert!(most.load(Ordering::Relaxed) <= 2_000);
    assert!(store.len() <= 2_000);
}

#[test]
fn exhausted_callers_survive_a_flood_of_new_ones() {
    for quota in each(10) {
        let (store, _) = store(1_000);
        let exhausted: Vec<Key> = (0..100_u64).map(|i| Key::from(("exhausted", i))).collect();
        for key in &exhausted {
            assert!(store.decide(&[Charge::new(rule("limit"), key, &quota).cost(10)]).is_admitted());
        }
        for i in 0..30_000_u64 {
            let key = Key::from(("once", i));
            assert!(store.decide(&[Charge::new(rule("limit"), &key, &quota)]).is_admitted());
        }
        for key in &exhausted {
            assert!(!store.decide(&[Charge::new(rule("limit"), key, &quota)]).is_admitted(), "{quota} {key}");
        }
    }
}

/// A caller that has waited for most of a unit is still denied, and is not pushed out by keys that have some of
/// their budget left.
#[test]
fn denied_callers_survive_a_flood_of_half_used_ones_although_time_has_passed() {
    for (quota, passed) in [
        (Quota::token_bucket(1, DAY), 13 * HOUR),
        (Quota::token_bucket(3, DAY), 7 * HOUR),
        (Quota::leaky_bucket(3, DAY), 7 * HOUR),
        (Quota::fixed_window(1, DAY), HOUR),
        (Quota::sliding_window(1, DAY), 24 * HOUR),
        (Quota::sliding_log(1, DAY), 23 * HOUR),
    ] {
        let (store, clock) = store(1_000);
        let limited = [Charge::new(rule("limit"), "denied", &quota)];
        assert!(store.decide(&[limited[0].cost(quota.max())]).is_admitted());
        clock.advance(passed);
        assert!(!store.decide(&limited).is_admitted(), "{quota}");
        let half = Quota::token_bucket(2, HOUR);
        for i in 0..5_000_u64 {
            assert!(store.decide(&[Charge::new(rule("flood"), &Key::from(i), &half)]).is_admitted());
            clock.advance(Duration::from_millis(1));
        }
        assert!(store.evicted() > 1_000, "{quota}");
        assert!(!store.decide(&limited).is_admitted(), "{quota}");
    }
}

/// Nor is a caller that keeps being denied pushed out by silent keys that are used up and expire later, even
/// if each request adds four of them.
#[test]
fn a_caller_that_keeps_being_denied_outlives_silent_ones_that_are_used_up() {
    for quota in [1, 2, 3].map(Quota::per_hour).into_iter().chain(each(1)) {
        let (store, _) = store(1_000);
        let banned = [Charge::new(rule("limit"), "banned", &quota)];
        assert!(store.decide(&[banned[0].cost(quota.max())]).is_admitted());
        let lasting = Quota::per_day(1);
        for i in 0..2_000_u64 {
            assert!(!store.decide(&banned).is_admitted(), "{quota}: free after {i} requests");
            let keys = [0, 1, 2, 3].map(|key| Key::from((i, key)));
            let charges = keys.each_ref().map(|key| Charge::new(rule("flood"), key, &lasting));
            assert!(store.decide(&charges).is_admitted());
        }
        assert!(store.evicted() > 6_000, "{quota}");
    }
}

/// Also if the caller was under two quotas, and the refund comes after one of them was forgotten.
#[test]
fn an_exhausted_caller_of_two_quotas_survives_a_refund() {
    for one in [Quota::per_second(10), Quota::fixed_window(10, SECOND), Quota::sliding_log(10, SECOND)] {
        for other in each(10) {
            let (store, clock) = store(16);
            let [first, last] = [one, other].map(|quota| {
                let store = &store;
                move |cost| {
                    let charge = Charge::new(rule("exhausted"), "caller", &quota).cost(cost);
                    store.decide(&[charge]).is_admitted()
                }
            });
            assert!(first(1) && last(9));
            clock.advance(5 * SECOND);
            while last(1) {}
            let refund = Refund::new(rule("exhausted"), "caller", 0);
            ratekeeper_contract::block_on(store.refund(&[refund]).into_future())
                .expect("memory does not fail");
            let light = Quota::per_hour(1_000_000);
            for i in 0..16_u64 {
                store.decide(&[Charge::new(rule("light"), &Key::from(i), &light)]);
            }
            assert_eq!(store.evicted(), 1, "{one}, then {other}");
            assert!(!last(10), "{one}, then {other}");
        }
    }
}

#[test]
fn expired_keys_make_room_before_any_that_count() {
    let (store, clock) = store(1_000);
    let quota = Quota::per_second(10);
    for i in 0..900_u64 {
        store.decide(&[Charge::new(rule("old"), &Key::from(i), &quota).cost(10)]);
    }
    clock.advance(SECOND);
    let lasting = Quota::per_hour(10);
    for i in 0..100_u64 {
        store.decide(&[Charge::new(rule("new"), &Key::from(i), &lasting)]);
    }
    for i in 0..500_u64 {
        store.decide(&[Charge::new(rule("flood"), &Key::from(i), &quota).cost(10)]);
    }
    for i in 0..100_u64 {
        let look = store.look(&[Charge::new(rule("new"), &Key::from(i), &lasting)]);
        assert_eq!(look.outcome("new").map(Outcome::remaining), Some(9), "key {i}");
    }
}

#[test]
fn idle_keys_disappear_by_the_calls_of_others_alone() {
    for max_keys in [1_000, 20_000] {
        let (store, clock) = store(max_keys);
        let held = max_keys as u64 / 2;
        for i in 0..held {
            store.decide(&[Charge::new(rule("idle"), &Key::from(i), &each(5)[i as usize % 5])]);
        }
        assert_eq!(store.len(), held as usize);
        clock.advance(2 * MINUTE);
        // One caller makes one call per second, for as long as it takes to sweep all shards once.
        for _ in 0..60 {
            clock.advance(SECOND);
            store.decide(&[Charge::new(rule("busy"), "busy", &Quota::per_second(10))]);
        }
        assert_eq!(store.len(), 1, "of {held}");
        assert_eq!(store.evicted(), 0);
    }
}

#[test]
fn keys_that_still_count_are_never_swept() {
    let (store, clock) = store(20_000);
    let quota = Quota::per_day(10);
    for i in 0..5_000_u64 {
        store.decide(&[Charge::new(rule("slow"), &Key::from(i), &quota).cost(3)]);
    }
    for _ in 0..200 {
        clock.advance(5 * SECOND);
        store.decide(&[Charge::new(rule("busy"), "busy", &Quota::per_second(10))]);
    }
    assert_eq!(store.len(), 5_001);
    for i in 0..5_000_u64 {
        let look = store.look(&[Charge::new(rule("slow"), &Key::from(i), &quota)]);
        assert_eq!(look.outcome("slow").map(Outcome::remaining), Some(7), "key {i}");
    }
}

#[test]
fn a_denied_or_free_request_takes_up_no_room() {
    let (store, _) = store(100);
    for i in 0..1_000_u64 {
        let key = Key::from(i);
        let never = store.decide(&[Charge::new(rule("denied"), &key, &Quota::per_second(5)).cost(6)]);
        assert!(!never.is_admitted());
        assert!(
            store.decide(&[Charge::new(rule("free"), &key, &Quota::per_second(5)).cost(0)]).is_admitted()
        );
    }
    assert!(store.is_empty());
}

#[test]
fn keys_disappear_also_after_the_clock_was_set_back() {
    let (store, clock) = store(5_000);
    for quota in each(5) {
        for i in 0..500_u64 {
            assert!(store.decide(&[Charge::new(rule("before"), &Key::from(i), &quota)]).is_admitted());
        }
        let now = clock.now();
        clock.set(now.saturating_sub(365 * 24 * 60 * MINUTE));
        for _ in 0..10 * 60 {
            clock.advance(SECOND);
            store.decide(&[Charge::new(rule("after"), &Key::GLOBAL, &quota)]);
        }
        assert!(store.len() <= 1, "{quota}: {} keys", store.len());
    }
}

/// However far back it was set: a shard that is in constant use remembers only the lower half of its last
/// time.
#[test]
fn keys_disappear_also_where_nobody_notices_that_the_clock_was_set_back() {
    for back in [1 << 32, (1 << 32) - 400_000, 10 << 32, 3_600_000_000_u64] {
        let (store, clock) = store(1_000);
        let (quota, hot) = (Quota::per_second(10), Key::from("hot"));
        let rule = rule("r");
        for i in 0..100_u64 {
            store.decide(&[Charge::new(rule, &Key::from(i), &quota)]);
        }
        clock.set(Timestamp::from_micros(clock.now().as_micros() - back));
        for _ in 0..200 {
            clock.advance(SECOND / 2);
            store.decide(&[Charge::new(rule, &hot, &quota)]);
        }
        assert_eq!(store.len(), 1, "{back}");
    }
}

/// Whether or not a charge was made under the first quota again, so that it is known how much it holds.
#[test]
fn keys_of_two_quotas_disappear_also_after_the_clock_was_set_back() {
    for one in each(5) {
        for other in each(7) {
            for asked in [&[one, other][..], &[one, other, one]] {
                let (store, clock) = store(5_000);
                for i in 0..100_u64 {
                    for quota in asked {
                        store.decide(&[Charge::new(rule("before"), &Key::from(i), quota)]);
                    }
                }
                let now = clock.now();
                clock.set(now.saturating_sub(365 * 24 * 60 * MINUTE));
                for _ in 0..60 {
                    clock.advance(10 * SECOND);
                    store.decide(&[Charge::new(rule("after"), &Key::GLOBAL, &one)]);
                }
                assert!(store.len() <= 1, "{asked:?}: {} keys", store.len());
            }
        }
    }
}

#[test]
fn the_rules_of_one_request_do_not_push_each_other_out() {
    let (store, _) = store(3);
    let quota = Quota::per_minute(5);
    let rules = ["first", "second", "third"].map(rule);
    let key = Key::from("caller");
    let charges = rules.map(|rule| Charge::new(rule, &key, &quota));
    let admitted = (0..1_000).filter(|_| store.decide(&charges).is_admitted()).count();
    assert_eq!(admitted, 5);
}

#[test]
fn a_key_that_had_expired_was_not_evicted() {
    let (store, clock) = store(100);
    let quota = Quota::per_second(1);
    let charge = |i: u64| store.decide(&[Charge::new(rule("flood"), &Key::from(i), &quota)]);
    for i in 0..100 {
        assert!(charge(i).is_admitted());
    }
    clock.advance(2 * SECOND);
    for i in 100..110 {
        assert!(charge(i).is_admitted());
    }
    assert_eq!(store.evicted(), 0);
}
