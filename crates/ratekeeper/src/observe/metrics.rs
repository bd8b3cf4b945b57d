//! Counters and gauges, through the `metrics` facade. See [`guide::metrics`](crate::guide::metrics) for what
//! they are.
//!
//! A handle taken before the application installs its recorder counts nothing, and looking one up for each
//! request costs more than a decision. So each rule takes its handles when they are first used while there is
//! a recorder.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use metrics::{Counter, Gauge, Unit, counter, describe_counter, describe_gauge, gauge, with_recorder};
use ratekeeper_core::{Clock, MemoryStore, Outcome, RuleName};

use super::{HintCode, Role, Said, Settled};

const DECISIONS: &str = "ratekeeper_decisions_total";
const NEAR_LIMIT: &str = "ratekeeper_near_limit_total";
const SETTLED: &str = "ratekeeper_settled_units_total";
const WAITING: &str = "ratekeeper_waiting";
const KEYS: &str = "ratekeeper_keys";
const EVICTIONS: &str = "ratekeeper_evictions_total";
const EXPIRATIONS: &str = "ratekeeper_expirations_total";

const HINTS: &str = "ratekeeper_hints_total";

fn describe() {
    describe_counter!(HINTS, Unit::Count, "Signs of misuse, by code.");
    describe_counter!(DECISIONS, Unit::Count, "What rules said, by rule, mode and outcome.");
    describe_counter!(NEAR_LIMIT, Unit::Count, "Admitted with less than a tenth of the quota left, by rule.");
    describe_counter!(
        SETTLED,
        Unit::Count,
        "Units given back or debited when requests were settled, by rule."
    );
    describe_gauge!(WAITING, Unit::Count, "Requests that are held back.");
    describe_gauge!(KEYS, Unit::Count, "Keys that a store in memory holds.");
    describe_counter!(EVICTIONS, Unit::Count, "Keys that made room for others before they had expired.");
    describe_counter!(EXPIRATIONS, Unit::Count, "Keys that were dropped because they had expired.");
}

/// Whether the application has installed a recorder.
///
/// The default recorder has no state, and every recorder that counts anything has some.
fn has_recorder() -> bool {
    with_recorder(|recorder| size_of_val(recorder) > 0)
}

/// The counters of one rule, one for each role.
#[derive(Debug, Default)]
pub(super) struct OfRule([OnceLock<Box<Counters>>; 3]);

#[derive(Debug)]
struct Counters {
    admitted: Counter,
    denied: Counter,
    near_limit: Counter,
    /// By outcome. Rare ones are created when they are needed.
    others: [OnceLock<Counter>; Said::COUNT],
    given_back: OnceLock<Counter>,
    debited: OnceLock<Counter>,
}

impl OfRule {
    fn get(&self, rule: RuleName, role: Role) -> Option<&Counters> {
        match self.0[role as usize].get() {
            Some(counters) => Some(counters),
            None => self.take(rule, role),
        }
    }

    pub(super) fn count(&self, rule: RuleName, role: Role, said: Said, outcome: Option<&Outcome>) {
        let Some(counters) = self.get(rule, role) else { return };
        counters.of(rule, role, said).increment(1);
        if let (Said::Admitted | Said::Delayed, Role::Enforced, Some(outcome)) = (said, role, outcome)
            && u64::from(outcome.remaining()) * 10 < u64::from(outcome.limit())
        {
            counters.near_limit.increment(1);
        }
    }

    /// The charge under the rule was raised or lowered by settling.
    pub(super) fn settled(&self, rule: RuleName, settled: Settled, units: u32) {
        let Some(counters) = self.get(rule, Role::Enforced) else { return };
        let (counter, direction) = match settled {
            Settled::GivenBack => (&counters.given_back, "given_back"),
            Settled::Debited => (&counters.debited, "debited"),
        };
        let counter =
            counter.get_or_init(|| counter!(SETTLED, "rule" => rule.as_str(), "direction" => direction));
        counter.increment(units.into());
    }

    /// Takes the handles, if there is a recorder.
    #[cold]
    fn take(&self, rule: RuleName, role: Role) -> Option<&Counters> {
        if !has_recorder() {
            return None;
        }
        let near_limit = || match role {
            Role::Enforced => counter!(NEAR_LIMIT, "rule" => rule.as_str()),
            Role::Shadow | Role::Candidate => Counter::noop(),
        };
        let counters = || {
            Box::new(Counters {
                admitted: decisions(rule, role, Said::Admitted),
                denied: decisions(rule, role, Said::Denied),
                near_limit: near_limit(),
                others: [const { OnceLock::new() }; Said::COUNT],
                given_back: OnceLock::new(),
                debited: OnceLock::new(),
            })
        };
        Some(self.0[role as usize].get_or_init(counters))
    }
}

impl Counters {
    fn of(&self, rule: RuleName, role: Role, said: Said) -> &Counter {
        match said {
            Said::Admitted => &self.admitted,
            Said::Denied => &self.denied,
            other => self.others[other as usize].get_or_init(|| decisions(rule, role, other)),
        }
    }
}

fn decisions(rule: RuleName, role: Role, said: Said) -> Counter {
    counter!(DECISIONS, "rule" => rule.as_str(), "mode" => role.as_str(), "outcome" => said.as_str())
}

pub(super) fn hinted(code: HintCode) {
    counter!(HINTS, "code" => code.as_str()).increment(1);
}

/// A request that waits. The gauge that was incremented is the one that is decremented.
#[derive(Debug)]
pub(super) struct WaitingGauge(Gauge);

impl WaitingGauge {
    pub(super) fn new() -> Self {
        let gauge = gauge!(WAITING);
        gauge.increment(1);
        Self(gauge)
    }
}

impl Drop for WaitingGauge {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}

/// What has been published about a limiter's in-memory stores.
#[derive(Debug, Default)]
pub(super) struct OfStores {
    is_described: AtomicBool,
    own: OfStore,
    local: OfStore,
}

impl OfStores {
    /// Publishes what has changed.
    pub(super) fn publish(&self, own: Option<Figures>, local: Option<Figures>) {
        if !has_recorder() {
            return;
        }
        if !self.is_described.swap(true, Ordering::Relaxed) {
            describe();
        }
        own.into_iter().for_each(|figures| self.own.publish("memory", figures));
        local.into_iter().for_each(|figures| self.local.publish("local", figures));
    }
}

/// The figures of an in-memory store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    keys: u64,
    evicted: u64,
    expired: u64,
}

impl Figures {
    pub(super) fn of<C: Clock>(store: &MemoryStore<C>) -> Self {
        Self { keys: store.len() as u64, evicted: store.evicted(), expired: store.expired() }
    }
}

/// What has been published about an in-memory store. There may be several limiters, so only changes are
/// published.
#[derive(Debug, Default)]
struct OfStore {
    keys: AtomicU64,
    evicted: AtomicU64,
    expired: AtomicU64,
    gauge: OnceLock<Gauge>,
}

impl OfStore {
    fn publish(&self, store: &'static str, figures: Figures) {
        let before = self.keys.swap(figures.keys, Ordering::Relaxed);
        let gauge = self.gauge.get_or_init(|| gauge!(KEYS, "store" => store));
        gauge.increment(figures.keys as f64 - before as f64);
        let more = |last: &AtomicU64, now: u64| now.saturating_sub(last.fetch_max(now, Ordering::Relaxed));
        counter!(EVICTIONS, "store" => store).increment(more(&self.evicted, figures.evicted));
        counter!(EXPIRATIONS, "store" => store).increment(more(&self.expired, figures.expired));
    }
}

impl Drop for OfStore {
    fn drop(&mut self) {
        if let Some(gauge) = self.gauge.get() {
            gauge.decrement(*self.keys.get_mut() as f64);
        }
    }
}
