//! Requests that are sent together are decided as if they had come one after the other.
//!
//! All of these run on one thread: what is asked before anything is awaited is sent in one go.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::future::join_all;
use ratekeeper_core::algorithm::{self, Counter};
use ratekeeper_core::{Charge, Clock, DAY, Decision, Key, ManualClock, Quota, RuleName, Store, Timestamp};
use ratekeeper_redis::RedisStore;

use crate::support::random::{Random, cases};
use crate::support::{each, patient, ready, rule, shared_server};

/// One request: the rule, key, quota and cost of each charge.
type Request = Vec<(RuleName, Key, Quota, u32)>;
type Model = HashMap<(RuleName, Key), Counter>;

fn charges(request: &Request) -> Vec<Charge<'_>> {
    request.iter().map(|(rule, key, quota, cost)| Charge::new(*rule, key, quota).cost(*cost)).collect()
}

/// What the algorithms decide for one request.
fn decide(model: &mut Model, request: &Request, now: Timestamp) -> Decision {
    let mut names = Vec::new();
    let mut counters = Vec::new();
    let mut places = Vec::new();
    for (rule, key, quota, _) in request {
        let name = (*rule, *key);
        places.push(names.iter().position(|known| *known == name).unwrap_or_else(|| {
            names.push(name);
            counters.push(model.get(&name).cloned().unwrap_or_else(|| Counter::new(quota)));
            names.len() - 1
        }));
    }
    let decision = algorithm::decide(&mut counters, &places, &charges(request), now);
    model.extend(names.into_iter().zip(counters));
    decision
}

async fn ask(store: &RedisStore, requests: &[Request]) -> Vec<Decision> {
    let asked = requests.iter().map(|request| store.charge(&charges(request)).into_future());
    let asked: Vec<_> = asked.collect();
    join_all(asked).await.into_iter().map(|answer| answer.expect("the store decides")).collect()
}

async fn store(prefix: &str) -> (RedisStore, ManualClock) {
    let clock = ManualClock::new(Timestamp::from_secs(1_700_000_040));
    let store = patient(shared_server()).prefix(prefix).clock(clock.clone());
    (ready(store.denial_cache_ttl(Duration::ZERO)).await, clock)
}

fn pause(clock: &ManualClock, random: &mut Random, quota: &Quota) {
    clock.advance(random.pause(quota).min(10 * DAY));
}

/// Three at once, each under its own quotas: the answers match one of the six orders.
#[tokio::test]
async fn three_at_once_are_answered_as_in_some_order() {
    const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    let (store, clock) = store("three-at-once").await;
    let rules = [rule("a"), rule("b")];
    for seed in cases(25) {
        let mut random = Random::new(seed);
        random.focus();
        let mut quotas: Vec<_> = (0..4).map(|_| random.quota()).collect();
        let mut models = vec![Model::new()];
        for step in 0..60 {
            pause(&clock, &mut random, &quotas[0]);
            if random.once_in(4) {
                quotas[random.clone().below(4) as usize] = random.changed(&quotas[0]);
            }
            let requests: Vec<Request> = (0..3)
                .map(|_| {
                    // A rule and key is charged under one quota within a request.
                    let chosen = [random.of(&quotas), random.of(&quotas)];
                    (0..random.of(&[1, 1, 2]))
                        .map(|_| {
                            let i = random.below(2) as usize;
                            (rules[i], Key::from(seed), chosen[i], random.cost(&chosen[i]))
                        })
                        .collect()
                })
                .collect();
            let decisions = ask(&store, &requests).await;
            // Different orders may give the same answers, and leave different counters.
            let mut possible: Vec<Model> = Vec::new();
            for (model, order) in models.iter().flat_map(|model| ORDERS.map(|order| (model, order))) {
                let mut model = model.clone();
                if order.iter().all(|i| decide(&mut model, &requests[*i], clock.now()) == decisions[*i])
                    && !possible.contains(&model)
                {
                    possible.push(model);
                }
            }
            assert!(
                !possible.is_empty(),
                "seed {seed}, step {step}: in no order of {requests:?}\nis the answer {decisions:?}\nfrom {models:?}"
            );
            models = possible;
        }
    }
}

/// A hundred at once: what is admitted is charged, and what is denied does not fit.
#[tokio::test]
async fn a_hundred_at_once_admit_what_the_algorithms_admit() {
    let (store, clock) = store("hundred").await;
    let rules = [rule("a"), rule("b"), rule("c")];
    let (mut admitted, mut denied) = (0, 0);
    for seed in cases(25) {
        let mut random = Random::new(1_000 + seed);
        random.focus();
        let mut quotas = rules.map(|_| random.quota());
        let keys = [Key::from(seed), Key::from((seed, "other"))];
        let mut model = Model::new();
        for round in 0..4 {
            let requests: Vec<Request> = (0..100)
                .map(|_| {
                    (0..random.of(&[1, 1, 1, 2, 3]))
                        .map(|_| {
                            let (i, key) = (random.below(3) as usize, random.of(&keys));
                            let cost = if random.once_in(3) { random.cost(&quotas[i]) } else { 1 };
                            (rules[i], key, quotas[i], cost)
                        })
                        .collect()
                })
                .collect();
            let decisions = ask(&store, &requests).await;
            let (yes, no): (Vec<_>, Vec<_>) =
                requests.iter().zip(&decisions).partition(|(_, decision)| decision.is_admitted());
            for (request, _) in &yes {
                let decision = decide(&mut model, request, clock.now());
                assert!(
                    decision.is_admitted(),
                    "{seed}, {round}: {request:?} was admitted, but {decision:?}"
                );
            }
            for (request, told) in &no {
                // Time stands still, so what did not fit then does not fit now.
                let decision = decide(&mut model, request, clock.now());
                assert!(
                    !decision.is_admitted(),
                    "{seed}, {round}: {request:?} was told {told:?}, but {decision:?}"
                );
            }
            for (i, key) in (0..3).flat_map(|i| keys.map(|key| (i, key))) {
                let request = vec![(rules[i], key, quotas[i], 1)];
                let counter = model.get(&(rules[i], key)).cloned();
                let counter = counter.unwrap_or_else(|| Counter::new(&quotas[i]));
                let expected = algorithm::peek(&[counter], &[0], &charges(&request), clock.now());
                let peeked = store.peek(&charges(&request)).await.expect("the store looks");
                assert_eq!(peeked, expected, "{seed}, {round}: {:?}", quotas[i]);
            }
            admitted += yes.len();
            denied += no.len();
            pause(&clock, &mut random, &quotas[0]);
            quotas[random.below(3) as usize] = random.changed(&quotas[1]);
        }
    }
    assert!(admitted > 500 && denied > 500, "{admitted} admitted, {denied} denied");
}

/// A thousand requests on one key at once, of which more are sent together than fit into a byte.
#[tokio::test]
async fn a_thousand_at_once_on_one_key_admit_precisely_the_limit() {
    let (store, _) = store("thousand").await;
    for (i, quota) in each(700, DAY).into_iter().enumerate() {
        let request = vec![(rule("all"), Key::from(i as u64), quota, 1)];
        let decisions = ask(&store, &vec![request; 1_000]).await;
        let admitted: Vec<_> = decisions.iter().filter(|decision| decision.is_admitted()).collect();
        assert_eq!(admitted.len(), 700, "{quota}");
        // Each of them was told about its own charge.
        let mut remaining: Vec<_> = admitted
            .iter()
            .map(|decision| decision.outcome("all").expect("it was asked").remaining())
            .collect();
        remaining.sort_unstable();
        assert_eq!(remaining, (0..700).collect::<Vec<_>>(), "{quota}");
    }
}

/// A request with more rules than any application has.
#[tokio::test]
async fn a_request_of_six_hundred_rules_is_one_decision() {
    let (store, clock) = store("six-hundred").await;
    let request: Request = (0..600_u32)
        .map(|i| {
            let quota = each(2 + i, Duration::from_secs(60 + u64::from(i)))[i as usize % 5];
            (rule(&format!("rule-{i}")), Key::from(i % 7), quota, 1)
        })
        .collect();
    let mut model = Model::new();
    for _ in 0..3 {
        let decisions = ask(&store, &[request.clone(), request[..300].to_vec()]).await;
        assert_eq!(decisions[0], decide(&mut model, &request, clock.now()));
        assert_eq!(decisions[1], decide(&mut model, &request[..300].to_vec(), clock.now()));
        clock.advance(Duration::from_secs(7));
    }
}

/// And one with more than Lua can pass at once. A request with too many is an error, and harms no other
/// request.
#[tokio::test]
async fn a_request_of_ten_thousand_rules_is_one_decision_and_of_more_an_error() {
    let (store, clock) = store("ten-thousand").await;
    let quota = Quota::per_day(3);
    let request: Request =
        (0..10_001_u32).map(|i| (rule("rule"), Key::from(i), quota, 1 + u32::from(i == 9_000))).collect();
    let (most, more) = (request[..10_000].to_vec(), vec![request]);
    for admitted in [true, false, false] {
        let decision = ask(&store, std::slice::from_ref(&most)).await.remove(0);
        assert_eq!((decision.is_admitted(), decision.outcomes().count()), (admitted, 10_000));
        assert_eq!(decision.at(), clock.now());
    }
    let charges = charges(&more[0]);
    assert!(store.charge(&charges).await.expect_err("it is too much").to_string().contains("unavailable"));
    store.peek(&charges).await.expect_err("it is too much");
    assert!(!store.breaker().is_open());
    assert!(ask(&store, &[vec![(rule("other"), Key::GLOBAL, quota, 1)]]).await[0].is_admitted());
}

/// Of a long log only those entries are read that an answer depends on, for all the answers of a call.
#[tokio::test]
async fn a_log_tells_each_of_two_limits_when_it_next_refills() {
    let (store, clock) = store("two-limits").await;
    let log = |limit| Quota::sliding_log(limit, Duration::from_secs(60));
    let one = |limit, cost| vec![(rule("log"), Key::GLOBAL, log(limit), cost)];
    let other = (rule("other"), Key::GLOBAL, Quota::per_day(1), 2);
    let mut model = Model::new();
    for _ in 0..3 {
        let taken = [one(50, 9)];
        assert_eq!(ask(&store, &taken).await[0], decide(&mut model, &taken[0], clock.now()));
        clock.advance(Duration::from_secs(1));
    }
    for limit in [15, 22, 24] {
        for (last, cost) in [(one(limit, 0), 1), ([one(limit, 0), vec![other]].concat(), 0)] {
            let requests = [one(50, cost), last];
            let decisions = ask(&store, &requests).await;
            for (decision, request) in decisions.iter().zip(&requests) {
                assert_eq!(*decision, decide(&mut model, request, clock.now()), "{limit}");
            }
        }
    }
}
