//! Keys that are denied without asking Redis.
//!
//! Once Redis has denied a key, only a refund, a reset or a changed rule can admit it before its wait is
//! over. So a counter that denied is remembered, and asked in place of Redis. It is remembered for at most a
//! second at a time, because refunds by other processes are not known here.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ratekeeper_core::algorithm::{Ask, Counter};
use ratekeeper_core::{
    Algorithm, Charge, Clock, Decision, ManualClock, Outcome, Quota, Retry, SystemClock, Timestamp,
};
use smallvec::SmallVec;

use crate::config::Config;
use crate::name::{ByHash, Counted, Names};
use crate::request::Charges;
use crate::request::totals::Totals;
use crate::request::verdict::Verdict;

/// How many shards the counters are in, each with its own lock.
const SHARDS: usize = 16;

/// How often Redis may be asked for more than is known about requests that one counter denies, for as long as
/// that is remembered.
const QUESTIONS: u8 = 16;

/// Counters that were part of a denial.
#[derive(Debug)]
pub(crate) struct DenialCache {
    clock: LocalClock,
    /// For how long they are asked instead of Redis.
    valid_for: Passed,
    max_per_shard: usize,
    names: Arc<Names>,
    /// Whether any request was ever denied.
    used: AtomicBool,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    /// By the hash of rule and key. Callers cannot find two with the same hash.
    entries: HashMap<u64, Entry, ByHash>,
    /// When to look for entries that no longer count, if there is no room.
    next_sweep: Passed,
}

/// How much is known of a denied request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Knowledge {
    /// Everything: Redis need not be asked.
    Enough,
    /// Only that it is denied; Redis may be asked about the other rules.
    Partial,
}

/// The outcome of a charge, and its time by Redis's clock.
type Said = (Timestamp, Outcome);

/// Nanoseconds that [have passed](DenialCache::passed).
pub(crate) type Passed = u64;

/// The clock of this process.
#[derive(Debug)]
enum LocalClock {
    /// The time, and how much of it has passed: a clock that is set back must not prolong a denial.
    System(SystemClock, quanta::Clock, u64),
    Manual(ManualClock),
}

impl LocalClock {
    fn system() -> Self {
        let clock = quanta::Clock::new();
        let start = clock.raw();
        Self::System(SystemClock::new(), clock, start)
    }
}

#[derive(Debug)]
struct Entry {
    counter: Counter,
    quota: Quota,
    /// Up to which cost everything is known. Of a log, the script only returns what matters for costs up to
    /// the next power of two.
    known_cost: u32,
    /// When Redis was asked, in time that [has passed](DenialCache::passed).
    asked: Passed,
    /// When Redis decided, by its own clock.
    decided: Timestamp,
    /// For a log: until when enough of it is known.
    until: Option<Timestamp>,
    /// How often Redis was asked about other counters of requests that this one denies, and since when that
    /// is counted.
    questions: u8,
    questions_since: Passed,
}

impl Entry {
    /// What the counter answers; `None` if Redis has to be asked.
    ///
    /// A caller whose costs rise has Redis asked whenever they double, which is 32 times at most.
    fn peek(&self, ask: Ask, cost: u32, now: Timestamp) -> Option<Outcome> {
        // A cost that never fits has nothing to wait for.
        let is_known = cost <= self.known_cost || cost > self.quota.max();
        is_known.then(|| self.counter.peek(&self.quota, ask, now))
    }

    /// Whether Redis may be asked for more than is known. Counts the question.
    const fn may_ask(&mut self, now: Passed, valid_for: Passed) -> bool {
        if now.saturating_sub(self.questions_since) >= valid_for {
            (self.questions_since, self.questions) = (now, 0);
        }
        self.questions = self.questions.saturating_add(1);
        self.questions <= QUESTIONS
    }

    /// A lower bound for the time by Redis's clock, if the entry still counts.
    ///
    /// Redis decided no earlier than it was asked. So at least as much time has passed here since it was
    /// asked as has passed there since it decided, and nobody is denied for longer than Redis would deny.
    #[inline]
    fn now(&self, now: Passed, valid_for: Passed) -> Option<Timestamp> {
        let passed = now.checked_sub(self.asked).filter(|passed| *passed < valid_for)?;
        // Rounded up, so that nobody is denied for longer.
        let now = Timestamp::from_micros(self.decided.as_micros().saturating_add(passed.div_ceil(1_000)));
        self.until.is_none_or(|until| now < until).then_some(now)
    }
}

/// Until when everything that matters of a log is known. The script lists the oldest entries, up to those
/// that have to leave for the charge to fit, and at least one. What follows these is not known.
fn known_until(quota: &Quota, outcome: &Outcome, decided: Timestamp) -> Option<Timestamp> {
    if quota.algorithm() != Algorithm::SlidingLog || outcome.reset_after().is_zero() {
        return None;
    }
    match outcome.retry() {
        None => Some(decided.saturating_add(outcome.refill_after())),
        Some(Retry::After(wait)) => Some(decided.saturating_add(wait)),
        // This holds until all entries have left.
        Some(Retry::Never) => None,
    }
}

impl Shard {
    /// Forgets a counter that is asked under another quota: Redis has to be asked, which keeps the count of
    /// both. Returns whether it did.
    #[inline]
    fn forget_unless_under(&mut self, hash: u64, quota: &Quota) -> bool {
        let is_other = self.entries.get(&hash).is_some_and(|entry| entry.quota != *quota);
        if is_other {
            self.entries.remove(&hash);
        }
        is_other
    }

    /// Drops what no longer counts, and returns whether anything was dropped. This is not done for each new
    /// key: if all are denied for longer, it would search for nothing, again and again.
    fn make_room(&mut self, now: Passed, valid_for: Passed) -> bool {
        // A clock that was set back is a reason to look, too: what was asked at a later time does not count.
        if now < self.next_sweep && self.next_sweep - now <= valid_for {
            return false;
        }
        self.next_sweep = now + valid_for / 8;
        let before = self.entries.len();
        self.entries.retain(|_, entry| entry.now(now, valid_for).is_some());
        self.entries.len() < before
    }
}

/// A duration in nanoseconds, capped at the longest that fits.
fn nanos(duration: Duration) -> Passed {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl DenialCache {
    pub(crate) fn new(config: &Config) -> Self {
        let clock = config.clock.clone();
        Self {
            clock: clock.map_or_else(LocalClock::system, LocalClock::Manual),
            valid_for: nanos(config.deny_for),
            max_per_shard: config.denied_keys.div_ceil(SHARDS),
            names: Arc::clone(&config.names),
            used: AtomicBool::new(false),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        match &self.clock {
            LocalClock::System(clock, ..) => clock.now(),
            LocalClock::Manual(clock) => clock.now(),
        }
    }

    /// How much time has passed since a fixed moment.
    #[inline]
    pub(crate) fn passed(&self) -> Passed {
        match &self.clock {
            LocalClock::System(_, clock, start) => clock.delta_as_nanos(*start, clock.raw()),
            LocalClock::Manual(clock) => clock.now().as_micros().saturating_mul(1_000),
        }
    }

    /// Whether there is nothing to find, which is true for most requests.
    fn is_empty(&self) -> bool {
        !self.used.load(Ordering::Relaxed)
    }

    fn is_off(&self) -> bool {
        self.valid_for == 0 || self.max_per_shard == 0
    }

    /// The denial of a charge about which Redis need not be asked.
    #[inline]
    pub(crate) fn find_one(&self, charge: &Charge<'_>) -> Option<(Timestamp, Outcome)> {
        if self.is_empty() {
            return None;
        }
        let mut at = Timestamp::UNIX_EPOCH;
        let outcome = self.look(charge, &mut at);
        (!outcome.is_admitted()).then_some((at, outcome))
    }

    /// The outcome of a charge by what is remembered, and its time by Redis's clock. If nothing is
    /// remembered, it is admitted.
    ///
    /// An outcome that is returned directly is not copied, which would take as long as the rest.
    #[inline(never)]
    fn look(&self, charge: &Charge<'_>, at: &mut Timestamp) -> Outcome {
        const UNKNOWN: Outcome = Outcome::admitted(0, 0, Duration::ZERO, Duration::ZERO, Duration::ZERO);
        let hash = self.names.hash(charge.rule, charge.key);
        let passed = self.passed();
        let mut shard = self.shard(hash);
        shard.forget_unless_under(hash, charge.quota);
        let Some(entry) = shard.entries.get(&hash) else { return UNKNOWN };
        let Some(now) = entry.now(passed, self.valid_for) else { return UNKNOWN };
        *at = now;
        entry.peek(Ask::of(charge), charge.cost, now).unwrap_or(UNKNOWN)
    }

    /// The denial of a request about which Redis need not be asked: one charge that is known not to fit is
    /// enough.
    ///
    /// If all of its counters are known, the decision is what Redis would say. If not, Redis may be asked,
    /// but only so often for the counter that denies: otherwise a caller over its limit could have Redis
    /// asked each time, by naming another key for another rule. A rule that is not known here is reported
    /// with a full budget.
    pub(crate) fn find(&self, charges: &[Charge<'_>]) -> Option<(Decision, Knowledge)> {
        if self.is_empty() {
            return None;
        }
        let local = self.passed();
        let mut known: SmallVec<[Option<Said>; 4]> = SmallVec::new();
        let (mut denied, mut totals) = (None, Totals::new(charges.len()));
        for charge in charges {
            // A request that charges a counter twice is rare, and what it is told depends on both charges.
            let hash = self.names.hash(charge.rule, charge.key);
            if totals.add(hash, charge.cost).is_some() {
                return None;
            }
            let said = self.peek(hash, charge, local)?;
            if let Some((now, _)) = said.filter(|(_, outcome)| !outcome.is_admitted()) {
                denied = denied.or(Some((hash, now)));
            }
            known.push(said);
        }
        let (hash, now) = denied?;
        let may_ask = known.iter().any(Option::is_none) && self.may_ask(hash, local);
        let mut decision = Decision::new(now);
        for (charge, said) in charges.iter().zip(known) {
            let whole = || Counter::new(charge.quota).peek(charge.quota, Ask::of(charge), now);
            decision.push(charge.rule, said.map_or_else(whole, |(_, outcome)| outcome));
        }
        Some((decision, if may_ask { Knowledge::Partial } else { Knowledge::Enough }))
    }

    /// The outcome of a charge by what is remembered, if anything is, and its time by Redis's
    /// clock. `None` if it was counted under another quota, about which Redis has to be asked.
    #[inline]
    fn peek(&self, hash: u64, charge: &Charge<'_>, local: Passed) -> Option<Option<Said>> {
        let mut shard = self.shard(hash);
        if shard.forget_unless_under(hash, charge.quota) {
            return None;
        }
        let said = shard.entries.get(&hash).and_then(|entry| {
            let now = entry.now(local, self.valid_for)?;
            Some((now, entry.peek(Ask::of(charge), charge.cost, now)?))
        });
        Some(said)
    }

    /// Whether Redis may be asked about the other charges of a request that this counter denies. Counts the
    /// question.
    fn may_ask(&self, hash: u64, local: Passed) -> bool {
        let mut shard = self.shard(hash);
        shard.entries.get_mut(&hash).is_none_or(|entry| entry.may_ask(local, self.valid_for))
    }

    /// Remembers Redis's answer to a request. If it was denied, all of its counters are remembered; if not,
    /// those that are remembered already are updated.
    pub(crate) fn learn(
        &self,
        charges: &Charges,
        counters: &[Counter],
        places: &[usize],
        verdict: &Verdict,
        asked: Passed,
    ) {
        if self.is_off() || (verdict.is_admitted() && self.is_empty()) {
            return;
        }
        let decision = verdict.to_decision();
        let mut totals = Totals::new(charges.len());
        for ((charge, place), (_, outcome)) in charges.iter().zip(places).zip(decision.outcomes()) {
            if totals.add(*place as u64, charge.cost).is_some() {
                continue;
            }
            let hash = charge.counter.hash;
            let mut shard = self.shard(hash);
            let is_known = shard.entries.contains_key(&hash);
            if decision.is_admitted() {
                if !is_known {
                    continue;
                }
                // After an admission by a log, Redis's answer says too little to continue with. And admitted
                // keys must not take the room of denied ones.
                let is_log = charge.quota.algorithm() == Algorithm::SlidingLog;
                if is_log || shard.entries.len() > self.max_per_shard / 2 {
                    shard.entries.remove(&hash);
                    continue;
                }
            }
            // Counters that did not deny tell what is left, but must not take the room of those that did.
            let room = if outcome.is_admitted() { self.max_per_shard / 2 } else { self.max_per_shard };
            if !is_known && shard.entries.len() >= room && !shard.make_room(self.passed(), self.valid_for) {
                // Redis is asked about what is not remembered.
                continue;
            }
            let cost = charge.cost;
            let known_cost = match charge.quota.algorithm() {
                Algorithm::SlidingLog if outcome.is_admitted() => cost,
                Algorithm::SlidingLog => cost.checked_next_power_of_two().unwrap_or(u32::MAX),
                _ => u32::MAX,
            };
            let (counter, quota, decided) = (counters[*place].clone(), charge.quota, decision.at());
            let until = known_until(&quota, outcome, decided);
            let before = shard.entries.get(&hash);
            let (questions, questions_since) =
                before.map_or((0, asked), |before| (before.questions, before.questions_since));
            let entry =
                Entry { counter, quota, known_cost, asked, decided, until, questions, questions_since };
            shard.entries.insert(hash, entry);
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Forgets a counter that has changed.
    pub(crate) fn forget(&self, counter: &Counted) {
        if !self.is_empty() {
            self.shard(counter.hash).entries.remove(&counter.hash);
        }
    }

    #[inline]
    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        // Nothing done under the lock panics half-way. (The map within a shard uses other bits of the hash.)
        self.shards[(hash >> 32) as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
