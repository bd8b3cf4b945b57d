//! The in-memory store under threads.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use ratekeeper_core::{
    Algorithm, Charge, Clock, Key, ManualClock, MemoryStore, Quota, RuleName, SECOND, Timestamp,
};

const THREADS: u64 = 6;
const REQUESTS: u64 = 3_000;
const KEYS: u64 = 4;
const START: Timestamp = Timestamp::from_secs(1_700_000_040);
/// Far longer than any of these tests takes, unless it hangs.
const HUNG: Duration = Duration::from_secs(60);

/// Numbers that look random and are the same in each run (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

fn rules(limit: u32, period: Duration) -> Vec<(RuleName, Quota)> {
    [
        Quota::token_bucket(limit, period),
        Quota::fixed_window(limit + 10, period),
        Quota::sliding_window(limit + 20, period),
        Quota::sliding_log(limit - 10, period),
        Quota::leaky_bucket(limit - 20, period),
    ]
    .into_iter()
    .map(|quota| (RuleName::new(quota.algorithm().name()).expect("it is a name"), quota))
    .collect()
}

type Admitted = HashMap<(RuleName, u64), u64>;

/// Makes random requests of one to five rules over few keys, in random order, from many threads. Returns what
/// was admitted for each rule and key.
fn storm(store: &MemoryStore<ManualClock>, rules: &[(RuleName, Quota)]) -> Admitted {
    let (done, all) = mpsc::channel();
    for thread in 0..THREADS {
        let (store, rules, done) = (store.clone(), rules.to_vec(), done.clone());
        thread::spawn(move || {
            let mut random = Random(thread);
            let mut admitted = Admitted::new();
            let keys: Vec<Key> = (0..KEYS).map(Key::from).collect();
            for _ in 0..REQUESTS {
                let charges: Vec<(usize, u64, u32)> = (0..=random.below(5))
                    .map(|_| (random.below(5) as usize, random.below(KEYS), 1 + random.below(3) as u32))
                    .collect();
                let asked: Vec<Charge<'_>> = charges
                    .iter()
                    .map(|(rule, key, cost)| {
                        Charge::new(rules[*rule].0, &keys[*key as usize], &rules[*rule].1).cost(*cost)
                    })
                    .collect();
                if store.decide(&asked).is_admitted() {
                    for (rule, key, cost) in charges {
                        *admitted.entry((rules[rule].0, key)).or_default() += u64::from(cost);
                    }
                }
            }
            done.send(admitted).expect("somebody listens");
        });
    }
    drop(done);
    let mut total = Admitted::new();
    for _ in 0..THREADS {
        let admitted = all.recv_timeout(HUNG).expect("no thread hangs or panics");
        for (counter, cost) in admitted {
            *total.entry(counter).or_default() += cost;
        }
    }
    total
}

#[test]
fn threads_at_once_admit_exactly_what_was_charged_while_time_stands_still() {
    // From one shard, where all share a lock, to many, where requests lock several.
    for max_keys in [64, 4_096, 1_000_000] {
        let clock = ManualClock::new(START);
        let store = MemoryStore::builder().max_keys(max_keys).clock(clock).build();
        let rules = rules(900, 60 * SECOND);
        let admitted = storm(&store, &rules);
        for (rule, quota) in &rules {
            for key in 0..KEYS {
                let total = admitted.get(&(*rule, key)).copied().unwrap_or_default();
                let left = store.look(&[Charge::new(*rule, &Key::from(key), quota)]);
                let left = left.outcome(rule.as_str()).expect("it was asked").remaining();
                // Nothing is lost, counted twice, or charged by a denied request.
                assert_eq!(total + u64::from(left), u64::from(quota.max()), "{quota}, key {key}");
            }
        }
        assert_eq!(store.evicted(), 0);
    }
}

#[test]
fn threads_at_once_use_up_a_limit_to_the_last_unit() {
    let store = MemoryStore::builder().clock(ManualClock::new(START)).build();
    for (rule, quota) in rules(100, 60 * SECOND) {
        let admitted: usize = thread::scope(|scope| {
            let one = || {
                (0..100).filter(|_| store.decide(&[Charge::new(rule, "one", &quota)]).is_admitted()).count()
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(one)).collect();
            threads.into_iter().map(|thread| thread.join().expect("it does not panic")).sum()
        });
        assert_eq!(admitted, quota.max() as usize, "{quota}");
    }
}

#[test]
fn threads_at_once_keep_every_limit_while_time_goes_on() {
    let clock = ManualClock::new(START);
    let store = MemoryStore::builder().max_keys(4_096).clock(clock.clone()).build();
    let rules = rules(60, SECOND);
    let stop = Arc::new(AtomicBool::new(false));
    let ticking = thread::spawn({
        let (clock, stop) = (clock.clone(), Arc::clone(&stop));
        move || {
            let mut random = Random(99);
            while !stop.load(Ordering::Relaxed) {
                clock.advance(Duration::from_micros(random.below(5_000)));
                thread::yield_now();
            }
        }
    });
    let admitted = storm(&store, &rules);
    stop.store(true, Ordering::Relaxed);
    ticking.join().expect("it does not panic");

    let elapsed = clock.now().saturating_since(START).as_micros() as u64;
    assert!(!admitted.is_empty());
    for ((rule, key), total) in admitted {
        let quota = rules.iter().find(|(name, _)| *name == rule).expect("it is one of these").1;
        let (limit, period) = (u64::from(quota.limit()), quota.period().as_micros() as u64);
        let most = match quota.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => limit + limit * elapsed / period,
            // The start is the edge of a window.
            _ => limit * (elapsed / period + 1),
        };
        assert!(total <= most, "{quota}, key {key}: {total} of {most} in {elapsed} µs");
    }
}
