//! Redis and memory give the same answers as the algorithms, whatever happens.

use std::time::Duration;

use ratekeeper_core::algorithm::{self, Counter};
use ratekeeper_core::{Charge, Clock, Key, ManualClock, MemoryStore, Quota, Refund, Store, Timestamp};

use crate::support::random::cases;
use crate::support::timeline::{About, Timeline};
use crate::support::{patient, ready, rule, shared_server};

/// How many steps a timeline has.
const STEPS: usize = 500;

async fn live_through(about: About) {
    for seed in cases(14) {
        Timeline::new(seed, about).await.run(STEPS).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timelines_on_a_clock_that_steps_back_are_those_of_the_algorithms() {
    live_through(About::StepsBack).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timelines_that_are_settled_after_each_step_back_are_those_of_memory() {
    live_through(About::StepsBackAndSettles).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timelines_with_denials_from_memory_are_those_of_memory() {
    live_through(About::DeniedFromMemory).await;
}

/// A step in the life of one counter.
#[derive(Clone, Copy, Debug)]
enum Step {
    At(u64),
    Charge(Quota, u32),
    /// A request that another rule denies.
    DeniedElsewhere(Quota, u32),
    Refund(u32),
    Debit(Quota, u32),
}
use Step::{At, Charge as Take, Debit, DeniedElsewhere, Refund as GiveBack};

/// Histories that are rarely produced at random. The times are in seconds.
fn histories() -> Vec<Vec<Step>> {
    let log = |limit, seconds| Quota::sliding_log(limit, Duration::from_secs(seconds));
    let window = |limit, seconds| Quota::fixed_window(limit, Duration::from_secs(seconds));
    let sliding = |limit, seconds| Quota::sliding_window(limit, Duration::from_secs(seconds));
    let bucket = |burst| Quota::per_second(1).burst(burst);
    let queue = Quota::leaky_bucket(2, Duration::from_secs(420));
    let slow = Quota::token_bucket(3, Duration::from_secs(10 * 365 * 86_400)).burst(42);
    vec![
        // What has left a log by the time of a denial does not return with the clock, nor with a longer
        // period.
        vec![At(0), Take(log(5, 10), 1), At(6), Take(log(5, 10), 1), At(11), Take(log(5, 10), 5), At(7)],
        vec![
            At(0),
            Take(log(5, 10), 1),
            At(6),
            Take(log(5, 10), 1),
            At(11),
            DeniedElsewhere(log(5, 10), 1),
            At(7),
        ],
        vec![
            At(0),
            Take(log(5, 10), 1),
            At(6),
            Take(log(5, 10), 1),
            At(11),
            Take(log(5, 10), 5),
            Take(log(5, 60), 5),
        ],
        vec![
            At(0),
            Take(log(5, 60), 1),
            At(9),
            Take(log(5, 60), 1),
            At(12),
            DeniedElsewhere(log(5, 5), 1),
            Take(log(5, 60), 5),
        ],
        vec![
            At(0),
            Take(log(5, 60), 1),
            At(9),
            Take(log(5, 60), 1),
            At(12),
            DeniedElsewhere(log(500, 5), 1),
            Take(log(5, 60), 5),
        ],
        // Nor does a window that is over and was asked about again by a denied request, after another quota
        // was: it counts again for a clock that is set back.
        vec![
            At(0),
            Take(sliding(2, 120), 1),
            Take(queue, 1),
            Take(sliding(2, 120), 0),
            Take(queue, 0),
            At(170),
            DeniedElsewhere(sliding(2, 120), 1),
            At(10),
            Take(sliding(2, 120), 1),
            Take(sliding(2, 120), 1),
        ],
        vec![
            At(0),
            Take(window(2, 100), 2),
            Take(queue, 0),
            Take(window(2, 100), 0),
            Take(queue, 0),
            At(170),
            DeniedElsewhere(window(2, 100), 1),
            At(169),
            DeniedElsewhere(window(2, 100), 1),
            At(10),
            Take(window(2, 100), 1),
        ],
        // Setting back a count of zero leaves it zero.
        vec![At(12), Take(window(5, 10), 0), At(9), Take(window(5, 10), 1)],
        vec![At(12), Take(window(5, 10), 2), GiveBack(2), At(9), Take(window(5, 10), 1)],
        vec![
            At(12),
            Take(window(5, 10), 0),
            At(9),
            DeniedElsewhere(window(5, 10), 1),
            At(10),
            Take(window(5, 10), 1),
        ],
        // More than a log of a smaller limit holds, asked with a cost of zero.
        vec![
            At(0),
            Take(log(50, 60), 9),
            At(1),
            Take(log(50, 60), 9),
            At(2),
            Take(log(50, 60), 9),
            Take(log(7, 60), 0),
        ],
        // A debt that is paid off no longer counts as one once a charge was admitted.
        vec![At(0), Debit(bucket(10), 15), At(6), Take(bucket(10), 1), At(1), Take(bucket(10), 9)],
        vec![At(0), Debit(bucket(10), 15), At(6), DeniedElsewhere(bucket(10), 0), At(1)],
        vec![At(0), Debit(bucket(10), 15), GiveBack(6), At(1), GiveBack(20), Debit(bucket(10), u32::MAX)],
        // A smaller burst owes no more than it holds; a larger one may owe nothing.
        vec![At(0), Debit(bucket(10), 20), Take(bucket(3), 0), Take(bucket(40), 1), Take(bucket(10), 1)],
        vec![
            At(0),
            Debit(bucket(100), 150),
            Take(bucket(3), 1),
            Take(bucket(100), 1),
            At(60),
            Take(bucket(3), 1),
            Take(bucket(100), 11),
            Take(bucket(100), 10),
            At(52),
            Take(bucket(3), 1),
            Take(bucket(100), 1),
        ],
        vec![At(9), Debit(bucket(10), 20), At(3), Take(bucket(10), 10), At(2), Debit(bucket(10), 1)],
        // The slowest bucket: what it owes is bounded by what can be represented.
        vec![At(0), Debit(slow, 30), Take(slow, 0), Debit(slow, u32::MAX), Take(slow, 1)],
        // Costs that are wider than those of the log, and larger than it can represent.
        vec![
            At(0),
            Take(log(5, 60), 2),
            At(1),
            Debit(log(5, 60), 70_000),
            GiveBack(69_998),
            Take(log(5, 60), 1),
        ],
        vec![At(0), Debit(log(5, 60), u32::MAX), Debit(log(5, 60), 7), At(60), Take(log(5, 60), 5)],
        vec![At(0), Debit(window(5, 10), u32::MAX), Debit(window(5, 10), 7), GiveBack(u32::MAX)],
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rare_histories_are_those_of_memory() {
    let clock = ManualClock::new(Timestamp::UNIX_EPOCH);
    let store = patient(shared_server()).prefix("rare").clock(clock.clone());
    let redis = ready(store.denial_cache_ttl(Duration::ZERO)).await;
    let memory = MemoryStore::builder().clock(clock.clone()).build();
    let (rule, never) = (rule("rare"), Quota::per_second(1));
    for (i, history) in histories().into_iter().enumerate() {
        let key = Key::from(i as u64);
        let mut counter = Counter::new(&Quota::per_second(1));
        let mut last = Quota::per_second(1);
        for step in &history {
            let now = clock.now();
            match *step {
                At(seconds) => clock.set(Timestamp::from_secs(1_700_000_000 + seconds)),
                Take(quota, cost) => {
                    last = quota;
                    let charges = [Charge::new(rule, &key, &quota).cost(cost)];
                    let decided = redis.charge(&charges).await.expect("redis decides");
                    let expected = algorithm::decide(std::slice::from_mut(&mut counter), &[0], &charges, now);
                    assert_eq!(decided, expected, "redis (left): {history:?}");
                    assert_eq!(memory.decide(&charges), expected, "memory (left): {history:?}");
                }
                DeniedElsewhere(quota, cost) => {
                    last = quota;
                    let charges = [
                        Charge::new(rule, &key, &quota).cost(cost),
                        Charge::new(rule, "other", &never).cost(2),
                    ];
                    let mut counters = [counter, Counter::new(&never)];
                    let expected = algorithm::decide(&mut counters, &[0, 1], &charges, now);
                    [counter, _] = counters;
                    let decided = redis.charge(&charges).await.expect("redis decides");
                    assert_eq!(decided, expected, "redis (left): {history:?}");
                    assert_eq!(memory.decide(&charges), expected, "memory (left): {history:?}");
                }
                Debit(quota, cost) => {
                    last = quota;
                    let debits = [ratekeeper_core::Debit::new(Charge::new(rule, &key, &quota).cost(cost))];
                    counter.debit(&quota, cost, None, now);
                    redis.debit(&debits).await.expect("redis takes what is due");
                    memory.debit(&debits).await.expect("memory takes what is due");
                }
                GiveBack(cost) => {
                    let refunds = [Refund::new(rule, &key, cost)];
                    counter.refund(cost, None, now);
                    redis.refund(&refunds).await.expect("redis gives back");
                    memory.refund(&refunds).await.expect("memory gives back");
                }
            }
            let charges = [Charge::new(rule, &key, &last).cost(2)];
            let expected = algorithm::peek(std::slice::from_ref(&counter), &[0], &charges, clock.now());
            assert_eq!(
                redis.peek(&charges).await.expect("redis looks"),
                expected,
                "redis (left): {history:?}"
            );
            assert_eq!(memory.look(&charges), expected, "memory (left): {history:?}");
        }
    }
}
