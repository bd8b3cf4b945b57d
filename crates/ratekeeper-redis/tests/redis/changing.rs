//! Quotas, algorithms and tiers that change under load: no more is admitted than both quotas allow together.
//! (What exactly is admitted, the contract compares with a model.)

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use ratekeeper::{Decision, Limiter, Quota, RateLimitLayer, Rule, RuleSet, Store, key};
use ratekeeper_core::{Algorithm, Clock, ManualClock, MemoryStore, SECOND, Timestamp};
use tokio::task::JoinSet;
use tower::{Layer, ServiceExt, service_fn};

use crate::support::random::Random;
use crate::support::{patient, ready, shared_server};

const KEYS: [&str; 3] = ["alice", "bob", "carol"];
/// How long the changes back and forth last, on the clock of the store.
const SPAN: Duration = Duration::from_secs(2);

/// Changes of limit, burst, rate, period and algorithm.
fn changes() -> [[Quota; 2]; 5] {
    [
        [Quota::per_second(50), Quota::per_second(20)],
        [Quota::fixed_window(40, SECOND), Quota::per_second(40)],
        [Quota::sliding_log(30, SECOND), Quota::sliding_window(60, SECOND)],
        [Quota::leaky_bucket(30, SECOND), Quota::fixed_window(60, 2 * SECOND)],
        [Quota::per_second(20).burst(100), Quota::per_second(20).burst(10)],
    ]
}

fn set(quota: Quota) -> RuleSet {
    RuleSet::new([Rule::new("api", quota)]).expect("a good rule")
}

/// The answers: the key, the time on the store's clock, and whether it was admitted.
type Answered = Vec<(usize, Timestamp, bool)>;

/// How the nodes change their quota.
#[derive(Clone, Copy)]
enum Change {
    /// Rules are swapped, at each node at a different moment.
    Swapped,
    /// A lookup returns a tier that alternates.
    Tier,
}

/// One node of a fleet.
#[derive(Clone)]
struct Node {
    limiter: Limiter,
    change: Change,
}

impl Node {
    fn new(store: impl Store, change: Change, [one, other]: [Quota; 2]) -> Self {
        let turn = AtomicU64::new(0);
        let rule = match change {
            Change::Swapped => Rule::new("api", one),
            Change::Tier => {
                Rule::new("api", one).key(key::header("x-key")).tier("pro", other).tier_by(move |_| {
                    let turn = Random::new(turn.fetch_add(1, Ordering::Relaxed)).once_in(2);
                    turn.then_some("pro")
                })
            }
        };
        let limiter = Limiter::builder().rule(rule).store(store).build().expect("a good rule");
        Self { limiter, change }
    }

    async fn ask(&self, key: &'static str) -> Decision {
        match self.change {
            Change::Swapped => self.limiter.charge("api", key).await.expect("the store decides"),
            Change::Tier => {
                let inner = service_fn(|_: Request<()>| async {
                    Ok::<_, Infallible>(Response::<Full<Bytes>>::default())
                });
                let request = Request::builder().header("x-key", key).body(()).expect("a request");
                let Ok(response) =
                    RateLimitLayer::new(self.limiter.clone()).layer(inner).oneshot(request).await;
                response.extensions().get::<Decision>().expect("it was limited").clone()
            }
        }
    }
}

/// Asks at all nodes at once while they change, until the store's clock has advanced far enough. `tick`
/// advances it.
async fn load(nodes: Vec<Node>, quotas: [Quota; 2], tick: impl Fn() + Send + 'static) -> Answered {
    let mut answered = Answered::new();
    let mut note = |key: usize, decision: &Decision| {
        answered.push((key, decision.at(), decision.is_admitted()));
        decision.at()
    };
    // Every caller has been seen under both quotas before it begins.
    let mut started = Timestamp::UNIX_EPOCH;
    for quota in [quotas[0], quotas[1], quotas[0]] {
        if matches!(nodes[0].change, Change::Swapped) {
            nodes[0].limiter.swap(set(quota));
        }
        for (key, name) in KEYS.into_iter().enumerate() {
            started = note(key, &nodes[0].ask(name).await);
        }
    }
    let end = started.saturating_add(SPAN);
    let done = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for (seed, node) in (0..).zip(nodes.iter().cloned().cycle().take(8)) {
        let mut random = Random::new(seed);
        let done = Arc::clone(&done);
        tasks.spawn(async move {
            let mut answered = Answered::new();
            loop {
                let key = random.below(KEYS.len() as u64) as usize;
                let decision = node.ask(KEYS[key]).await;
                answered.push((key, decision.at(), decision.is_admitted()));
                if decision.at() > end {
                    done.store(true, Ordering::Relaxed);
                    return answered;
                }
                tokio::task::yield_now().await;
            }
        });
    }
    let mut random = Random::new(17);
    while !done.load(Ordering::Relaxed) {
        tick();
        if matches!(nodes[0].change, Change::Swapped) {
            random.of(&nodes.iter().collect::<Vec<_>>()).limiter.swap(set(random.of(&quotas)));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    while let Some(task) = tasks.join_next().await {
        answered.extend(task.expect("nothing panics"));
    }
    answered
}

/// The most that a quota admits within a span.
fn most(quota: &Quota, span: Duration) -> u64 {
    let periods = span.as_micros() as u64 / quota.period().as_micros() as u64;
    match quota.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let came_back = u128::from(quota.limit()) * span.as_micros() / quota.period().as_micros();
            u64::from(quota.max()) + came_back as u64 + 1
        }
        Algorithm::SlidingLog => u64::from(quota.limit()) * (periods + 1),
        // Twice the limit around the edge between two windows.
        _ => u64::from(quota.limit()) * (periods + 2),
    }
}

fn check(quotas: [Quota; 2], answered: &Answered) {
    let [one, other] = quotas;
    for key in 0..KEYS.len() {
        let of_key = || answered.iter().filter(|(of, ..)| *of == key);
        let mut admitted: Vec<Timestamp> =
            of_key().filter(|(.., admitted)| *admitted).map(|(_, at, _)| *at).collect();
        admitted.sort_unstable();
        for (i, from) in admitted.iter().enumerate() {
            for (j, to) in admitted.iter().enumerate().skip(i) {
                let span = to.saturating_since(*from);
                let (count, most) = ((j - i + 1) as u64, most(&one, span) + most(&other, span));
                assert!(count <= most, "{one} and {other}: {count} in {span:?}, not {most}");
            }
        }
        let least = one.limit().min(other.limit()) as usize;
        assert!(admitted.len() >= least, "{one} and {other}: only {} in {SPAN:?}", admitted.len());
        assert!(admitted.len() < of_key().count(), "{one} and {other}: nobody was denied");
    }
}

async fn in_memory(change: Change, changes: impl IntoIterator<Item = [Quota; 2]>) {
    for quotas in changes {
        let clock = ManualClock::new(Timestamp::from_secs(1_700_000_000));
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let nodes = (0..3).map(|_| Node::new(store.clone(), change, quotas)).collect();
        let ticking = clock.clone();
        let answered = load(nodes, quotas, move || ticking.advance(Duration::from_micros(7_919))).await;
        assert!(clock.now() > Timestamp::from_secs(1_700_000_000).saturating_add(SPAN));
        check(quotas, &answered);
    }
}

async fn in_redis(change: Change, changes: impl IntoIterator<Item = [Quota; 2]>) {
    for (i, quotas) in changes.into_iter().enumerate() {
        let kind = if matches!(change, Change::Tier) { "tier" } else { "swapped" };
        let mut nodes: Vec<Node> = Vec::new();
        for _ in 0..3 {
            let store = patient(shared_server()).prefix(format!("changing-{kind}-{i}"));
            let store = ready(store.denial_cache_ttl(Duration::ZERO)).await;
            nodes.push(Node::new(store, change, quotas));
        }
        let answered = load(nodes, quotas, || {}).await;
        check(quotas, &answered);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rules_that_are_swapped_under_load_admit_what_both_allow_in_memory() {
    in_memory(Change::Swapped, changes()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn rules_that_are_swapped_under_load_admit_what_both_allow_in_redis() {
    in_redis(Change::Swapped, changes()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_tier_that_changes_under_load_admits_what_both_allow_in_memory() {
    in_memory(Change::Tier, [[Quota::per_second(10), Quota::per_second(50)], changes()[4]]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_tier_that_changes_under_load_admits_what_both_allow_in_redis() {
    in_redis(Change::Tier, [[Quota::per_second(10), Quota::per_second(50)], changes()[4]]).await;
}

/// A queue that is only looked at, because those who ask hardly wait, is read under its new quota from the first
/// denial on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_faster_queue_is_soon_short_enough_for_those_who_hardly_wait() {
    let store = ready(patient(shared_server()).prefix("faster-queue")).await;
    let hour = Quota::leaky_bucket(10, 3_600 * SECOND).capacity(10);
    let limiter = Limiter::builder().rule(Rule::new("api", hour)).store(store).build().expect("a good rule");
    for _ in 0..5 {
        assert!(limiter.charge("api", "alice").await.expect("the store decides").is_admitted());
    }
    limiter.swap(set(Quota::leaky_bucket(10, SECOND).capacity(10)));
    let admitted = async {
        while !limiter
            .charge("api", "alice")
            .ready_within(Duration::from_millis(100))
            .await
            .expect("the store decides")
            .is_admitted()
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), admitted).await.expect("it drains within a second");
}
