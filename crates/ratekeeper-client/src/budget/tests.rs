//! The pace against the real algorithms, in simulated time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use ratekeeper_core::{
    Algorithm, Charge, ManualClock, MemoryStore, Outcome, Quota, RuleName, SECOND, Timestamp,
};
use tokio::time::Instant;

use super::{Budget, Sent, Turn};
use crate::field::{LimitReport, Refusal, Report};

/// A quarter into a second, so that no window begins with the simulation.
const START: Timestamp = Timestamp::from_micros(1_700_000_000_250_000);
const CALLERS: usize = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A request reaches the server.
    Arrives(usize),
    /// A response reaches the client.
    Answered(usize),
    /// The client looks whether it may send.
    Wakes,
}

struct Simulation {
    random: fastrand::Rng,
    rules: Vec<(RuleName, Quota)>,
    /// The most that a message takes longer than a millisecond.
    jitter: Duration,
    /// The least that a message takes.
    latency: Duration,
    /// How long the network stands still, every five seconds.
    stall: Duration,
    with_fields: bool,
}

#[derive(Debug, Default)]
struct Totals {
    admitted: u32,
    refused: u32,
    /// Refusals of requests that were sent after a refusal and before any success.
    refused_in_a_row: u32,
}

impl Simulation {
    fn new(quotas: &[Quota]) -> Self {
        let name = |n| RuleName::new(&format!("rule-{n}")).unwrap();
        Self {
            random: fastrand::Rng::with_seed(7),
            rules: quotas.iter().enumerate().map(|(n, quota)| (name(n), *quota)).collect(),
            jitter: Duration::from_millis(4),
            latency: Duration::from_millis(1),
            stall: Duration::ZERO,
            with_fields: true,
        }
    }

    /// When a message arrives.
    fn arrival(&mut self, sent: Duration) -> Duration {
        let at = sent + self.latency + self.jitter.mul_f64(self.random.f64());
        let in_cycle = at.as_secs_f64() % 5.0;
        let stall_ends = 2.0 + self.stall.as_secs_f64();
        let held = if in_cycle >= 2.0 { (stall_ends - in_cycle).max(0.0) } else { 0.0 };
        at + Duration::from_secs_f64(held)
    }

    fn run(mut self, span: Duration) -> Totals {
        let clock = ManualClock::new(START);
        let store = MemoryStore::builder().clock(clock.clone()).build();
        let start = Instant::now();
        let mut budget = Budget::new();
        let mut events = BinaryHeap::from([Reverse((Duration::ZERO, Event::Wakes))]);
        let mut requests: Vec<(Sent, Duration, Report)> = Vec::new();
        let (mut in_flight, mut wakes_at) = (0, Duration::ZERO);
        let (mut totals, mut refused_at) = (Totals::default(), None);
        while let Some(Reverse((at, event))) = events.pop() {
            if at >= span {
                break;
            }
            let now = start + at;
            match event {
                Event::Arrives(id) => {
                    clock.set(START.saturating_add(at));
                    requests[id].2 = self.serve(&store);
                    events.push(Reverse((self.arrival(at), Event::Answered(id))));
                    continue;
                }
                Event::Answered(id) => {
                    in_flight -= 1;
                    let (sent, sent_at, report) = &requests[id];
                    let wait = report.refusal.and_then(|refusal| refusal.wait);
                    if wait.is_some() {
                        totals.refused += 1;
                        totals.refused_in_a_row += u32::from(refused_at.is_some_and(|at| *sent_at > at));
                        refused_at = Some(at);
                    } else {
                        totals.admitted += 1;
                        refused_at = None;
                    }
                    budget.received(*sent, report, wait, now, self.random.f64());
                }
                Event::Wakes => {}
            }
            while in_flight < CALLERS {
                match budget.turn(now) {
                    Turn::Now => {
                        let sent = budget.sent(now, self.random.f64());
                        requests.push((sent, at, Report::default()));
                        in_flight += 1;
                        events.push(Reverse((self.arrival(at), Event::Arrives(requests.len() - 1))));
                    }
                    Turn::Paced(until) | Turn::Blocked(until) => {
                        // Timers fire up to a millisecond late.
                        let until = until.duration_since(start) + Duration::from_millis(1);
                        if wakes_at <= at || until < wakes_at {
                            wakes_at = until;
                            events.push(Reverse((until, Event::Wakes)));
                        }
                        break;
                    }
                }
            }
        }
        totals
    }

    /// Answers as our server does, with the fields of draft 11.
    fn serve(&self, store: &MemoryStore<ManualClock>) -> Report {
        let charges: Vec<_> = self.rules.iter().map(|(rule, quota)| Charge::new(*rule, "k", quota)).collect();
        let decision = store.decide(&charges);
        let ceil = |wait: Duration| Duration::from_secs((wait.as_micros().div_ceil(1_000_000) as u64).max(1));
        let limit = |((rule, quota), outcome): (&(RuleName, Quota), &Outcome)| LimitReport {
            name: rule.as_str().to_owned(),
            quota: Some(
                (f64::from(quota.limit()) / quota.period().as_secs_f64() * ceil(window(quota)).as_secs_f64())
                    as u64,
            ),
            window: Some(ceil(window(quota))),
            remaining: Some(outcome.remaining().into()),
            reset: (!outcome.refill_after().is_zero() || outcome.remaining() == 0)
                .then(|| ceil(outcome.refill_after())),
        };
        let limits = self.rules.iter().zip(decision.outcomes().map(|(_, outcome)| outcome)).map(limit);
        let refusal = decision.retry().map(|retry| Refusal {
            wait: retry.after().map(ceil),
            is_overload: false,
            is_final: false,
        });
        Report { refusal, limits: if self.with_fields { limits.collect() } else { Vec::new() } }
    }
}

fn window(quota: &Quota) -> Duration {
    match quota.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => quota.full_refill(),
        _ => quota.period(),
    }
}

const SPAN: Duration = Duration::from_secs(20);

fn algorithms(limit: u32, period: Duration) -> [Quota; 5] {
    [
        Quota::token_bucket(limit, period),
        Quota::leaky_bucket(limit, period),
        Quota::fixed_window(limit, period),
        Quota::sliding_window(limit, period),
        Quota::sliding_log(limit, period),
    ]
}

/// Runs callers that always have something to send, over networks of different quality. None is refused. On a bad
/// network, less of the quota is used.
fn check(quotas: &[Quota], share: f64) {
    let rate = |quota: &Quota| f64::from(quota.limit()) / quota.period().as_secs_f64();
    let permitted = quotas.iter().map(rate).fold(f64::INFINITY, f64::min) * SPAN.as_secs_f64();
    for (seed, jitter, latency, stall, share) in [
        (1, 4, 1, 0, share),
        (2, 15, 20, 0, share - 0.3),
        (3, 30, 1, 0, share - 0.3),
        (4, 4, 50, 0, share - 0.3),
        (5, 4, 1, 300, share - 0.3),
    ] {
        let mut simulation = Simulation::new(quotas);
        simulation.latency = Duration::from_millis(latency);
        simulation.stall = Duration::from_millis(stall);
        simulation.random = fastrand::Rng::with_seed(seed);
        simulation.jitter = Duration::from_millis(jitter);
        let totals = simulation.run(SPAN);
        let used = f64::from(totals.admitted) / permitted;
        assert_eq!(
            totals.refused, 0,
            "{quotas:?}, jitter {jitter} ms, latency {latency} ms, stall {stall} ms: {totals:?}"
        );
        assert!(
            used >= share,
            "{quotas:?}, jitter {jitter} ms, latency {latency} ms, stall {stall} ms: {used:.3}, {totals:?}"
        );
    }
}

#[test]
fn no_algorithm_refuses_and_nearly_all_of_the_quota_is_used() {
    for (limit, seconds) in [(100, 1), (400, 1), (100, 10), (250, 5)] {
        for quota in algorithms(limit, seconds * SECOND) {
            check(&[quota], 0.95);
        }
    }
}

#[test]
fn small_quotas_are_not_exceeded_either() {
    for (limit, seconds) in [(10, 1), (20, 2), (10, 10), (7, 3), (2, 1)] {
        for quota in algorithms(limit, seconds * SECOND) {
            let is_bucket = matches!(quota.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket);
            check(&[quota], if is_bucket && limit > 2 { 0.95 } else { 0.4 });
        }
    }
}

#[test]
fn small_and_large_bursts_are_used_at_the_buckets_rate() {
    for burst in [20, 150, 1_000] {
        check(&[Quota::per_second(100).burst(burst)], 0.95);
    }
    check(&[Quota::per_minute(600).burst(5)], 0.85);
}

#[test]
fn the_tightest_of_several_rules_sets_the_pace() {
    check(&[Quota::per_second(100), Quota::fixed_window(2_000, 10 * SECOND)], 0.95);
    check(&[Quota::sliding_log(100, SECOND), Quota::fixed_window(500, 10 * SECOND)], 0.95);
    check(&[Quota::sliding_window(1_000, 10 * SECOND), Quota::leaky_bucket(120, SECOND)], 0.95);
}

#[test]
fn a_server_that_only_says_when_to_retry_does_not_refuse_twice_in_a_row() {
    for quota in algorithms(20, SECOND).into_iter().chain(algorithms(50, 5 * SECOND)) {
        let mut simulation = Simulation::new(&[quota]);
        simulation.with_fields = false;
        let totals = simulation.run(SPAN);
        assert_eq!(totals.refused_in_a_row, 0, "{quota}: {totals:?}");
        assert!(totals.refused <= totals.admitted / 5, "{quota}: {totals:?}");
        assert!(totals.admitted >= 100, "{quota}: {totals:?}");
    }
}

fn start() -> (Budget, Instant) {
    (Budget::new(), Instant::now())
}

fn refused(wait: u64) -> (Report, Option<Duration>) {
    let wait = Some(Duration::from_secs(wait));
    let refusal = Refusal { wait, is_overload: false, is_final: false };
    (Report { refusal: Some(refusal), limits: Vec::new() }, wait)
}

#[test]
fn the_first_request_goes_ahead_and_the_others_wait_for_its_response_but_not_for_long() {
    let (mut budget, now) = start();
    assert_eq!(budget.turn(now), Turn::Now);
    let first = budget.sent(now, 0.0);
    assert_eq!(budget.turn(now), Turn::Blocked(now + super::PROBE_WAIT));
    assert_eq!(budget.turn(now + super::PROBE_WAIT), Turn::Now);
    budget.received(first, &Report::default(), None, now, 0.0);
    assert_eq!(budget.turn(now), Turn::Now);
    assert!(budget.is_unlimited());
}

#[test]
fn if_the_first_request_is_abandoned_the_next_one_goes_ahead() {
    let (mut budget, now) = start();
    let first = budget.sent(now, 0.0);
    budget.abandoned(first);
    assert_eq!(budget.turn(now), Turn::Now);
    budget.sent(now, 0.0);
    assert!(matches!(budget.turn(now), Turn::Blocked(_)));
}

#[test]
fn a_pause_stops_everyone_and_is_extended_but_never_shortened() {
    let (mut budget, now) = start();
    let [a, b, c] = [(); 3].map(|()| budget.sent(now, 0.0));
    let (long, wait) = refused(10);
    assert!(budget.received(a, &long, wait, now, 0.5));
    // A tenth of the wait at most is jitter.
    let until = now + Duration::from_millis(10_500);
    assert_eq!(budget.turn(now), Turn::Blocked(until));
    let (short, wait) = refused(2);
    assert!(!budget.received(b, &short, wait, now, 0.5));
    assert_eq!(budget.turn(now), Turn::Blocked(until));
    // A success that was in flight does not end it.
    budget.received(c, &Report::default(), None, now, 0.5);
    assert_eq!(budget.turn(now), Turn::Blocked(until));
    assert_eq!(budget.expected_wait(now, 7), Duration::from_millis(10_500));

    // One request goes ahead, then the others.
    assert_eq!(budget.turn(until), Turn::Now);
    let probe = budget.sent(until, 0.5);
    assert!(matches!(budget.turn(until), Turn::Blocked(_)));
    budget.received(probe, &Report::default(), None, until, 0.5);
    assert!(matches!(budget.turn(until), Turn::Paced(_)), "spread, not as a herd");
}

fn limit(remaining: u64, reset: u64) -> Report {
    let limit = LimitReport {
        remaining: Some(remaining),
        reset: Some(Duration::from_secs(reset)),
        ..LimitReport::default()
    };
    Report { refusal: None, limits: vec![limit] }
}

#[test]
fn what_remains_is_spread_over_the_time_to_the_reset() {
    let (mut budget, now) = start();
    let first = budget.sent(now, 0.0);
    budget.received(first, &limit(10, 100), None, now, 0.0);
    let Turn::Paced(at) = budget.turn(now) else { panic!("{:?}", budget.turn(now)) };
    assert!((9.0..=11.0).contains(&at.duration_since(now).as_secs_f64()), "{:?}", at - now);
}

#[test]
fn nothing_is_sent_while_nothing_remains_and_one_request_after_that() {
    let (mut budget, now) = start();
    let first = budget.sent(now, 0.0);
    budget.received(first, &limit(0, 30), None, now, 0.0);
    let reset = now + Duration::from_secs(30);
    assert_eq!(budget.turn(now), Turn::Blocked(reset));
    assert_eq!(budget.expected_wait(now, 0), Duration::from_secs(30));
    assert_eq!(budget.turn(reset), Turn::Now);
    budget.sent(reset, 0.0);
    assert!(matches!(budget.turn(reset), Turn::Blocked(_)), "until its response says how much there is");
}

#[test]
fn requests_in_flight_count_against_what_remains() {
    let (mut budget, now) = start();
    let first = budget.sent(now, 0.0);
    let others: Vec<_> = (0..4).map(|_| budget.sent(now, 0.0)).collect();
    budget.received(first, &limit(4, 30), None, now, 0.0);
    assert!(matches!(budget.turn(now), Turn::Blocked(_)), "the four in flight may need all of them");
    // The last one was sent when the first was still in flight, so any order of arrival is possible.
    budget.received(others[3], &limit(3, 30), None, now, 0.0);
    assert!(matches!(budget.turn(now), Turn::Blocked(_)));
}
