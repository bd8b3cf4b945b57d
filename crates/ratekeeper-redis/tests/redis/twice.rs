//! Requests that charge one counter under several quotas, as a caller's tiers may.

use std::time::Duration;

use ratekeeper_core::algorithm::{self, Counter};
use ratekeeper_core::{Charge, Clock, DAY, Key, ManualClock, MemoryStore, Quota, Store, Timestamp};

use crate::support::random::{Random, cases};
use crate::support::{patient, ready, rule, shared_server};

/// Each charge is decided as if it came alone with the sum of those before it, and all are charged or none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_that_a_request_charges_under_several_quotas_is_the_same_everywhere() {
    let clock = ManualClock::new(Timestamp::from_secs(1_700_000_040));
    let store = patient(shared_server()).prefix("twice").clock(clock.clone());
    let redis = ready(store.denial_cache_ttl(Duration::ZERO)).await;
    let memory = MemoryStore::builder().clock(clock.clone()).build();
    let (mut admitted, mut denied) = (0, 0);
    for seed in cases(100) {
        let mut random = Random::new(seed);
        random.focus();
        let (key, quotas) = (Key::from(seed), [random.quota(), random.quota()]);
        let mut counter = Counter::new(&quotas[0]);
        for step in 0..30 {
            clock.advance(random.pause(&quotas[0]).min(10 * DAY));
            let costs: Vec<(Quota, u32)> = (0..=random.below(3))
                .map(|_| {
                    let quota = random.of(&quotas);
                    (quota, random.cost(&quota))
                })
                .collect();
            let charges: Vec<_> =
                costs.iter().map(|(quota, cost)| Charge::new(rule("r"), &key, quota).cost(*cost)).collect();
            let places = vec![0; charges.len()];
            let expected =
                algorithm::decide(std::slice::from_mut(&mut counter), &places, &charges, clock.now());
            let decided = redis.charge(&charges).await.expect("redis decides");
            assert_eq!(decided, expected, "redis (left): {seed}, {step}: {costs:?}");
            assert_eq!(memory.decide(&charges), expected, "memory (left): {seed}, {step}: {costs:?}");
            *(if expected.is_admitted() { &mut admitted } else { &mut denied }) += 1;
        }
    }
    assert!(admitted > 0 && denied > 0, "{admitted} {denied}");
}

/// One request must not make others that are sent along with it fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_is_asked_along_with_it_is_answered() {
    let store = ready(patient(shared_server()).prefix("twice-bystanders")).await;
    let (a, b) = (Quota::sliding_window(4, DAY), Quota::per_minute(20));
    let plenty = Quota::fixed_window(1_000, 30 * DAY);
    let key = Key::from("alice");
    let others: Vec<Key> = (0..20_u64).map(Key::from).collect();
    let twice = [Charge::new(rule("tiers"), &key, &a), Charge::new(rule("tiers"), &key, &b)];
    let alone: Vec<_> = others.iter().map(|key| [Charge::new(rule("alone"), key, &plenty)]).collect();
    let mut asked: Vec<_> = alone.iter().map(|charges| store.charge(charges).into_future()).collect();
    asked.insert(10, store.charge(&twice).into_future());
    for decided in futures_util::future::join_all(asked).await {
        assert!(decided.expect("redis decides").is_admitted());
    }
}
