//! Keys that are denied without asking Redis.
//!
//! Once Redis has denied a key, only a refund, a reset or a changed rule can admit it before its wait is
//! over. So a counter that denied is remembered, and asked in place of Redis. It is remembered for at most a
//! second at a time, because refunds by other processes are not known here. Then one request asks Redis, and
//! those that arrive before the answer wait for it: a flood costs one question a second.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ratekeeper_core::algorithm::{Ask, Counter};
use ratekeeper_core::{
    Algorithm, Charge, Clock, Decision, ManualClock, Outcome, Quota, Retry, SystemClock, Timestamp,
};
use smallvec::SmallVec;
use tokio::sync::watch;

use crate::config::Config;
use crate::name::{ByHash, Counted, Names};
use crate::request::Charges;

/// How many shards the counters are in, each with its own lock.
const SHARDS: usize = 16;

/// How often Redis may be asked about other rules of requests that one counter denies, for as long as that is
/// remembered.
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

/// What is known of a request.
#[derive(Debug)]
pub(crate) enum Lookup {
    /// It is denied, and Redis need not be asked.
    Denied(Decision),
    /// Redis is asked.
    Ask,
    /// Redis is asked about a counter that would still deny. Others wait for the answer until this is
    /// dropped.
    Lead(Question),
    /// Another request asks Redis about such a counter. The channel is closed when that is over.
    Follow(watch::Receiver<()>),
}

/// A question about a counter that would still deny.
#[derive(Debug)]
pub(crate) struct Question {
    cache: Arc<DenialCache>,
    hash: u64,
}

impl Drop for Question {
    fn drop(&mut self) {
        if let Some(entry) = self.cache.shard(self.hash).entries.get_mut(&self.hash) {
            entry.question = None;
        }
    }
}

/// The counters of a request that were looked at.
type Seen = HashSet<u64, ByHash>;

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
    /// How often Redis was asked about other rules of requests that this one denies, and since when that is
    /// counted.
    questions: (u8, Passed),
    /// Closed when the question about it that is in flight is over: with the next answer at the latest,
    /// which replaces the entry.
    question: Option<watch::Sender<()>>,
}

impl Entry {
    /// What the counter answers to a charge, and when by Redis's clock; `None` if Redis has to be asked.
    fn peek(&self, charge: &Charge<'_>, local: Passed, valid_for: Passed) -> Option<Said> {
        // A caller whose costs rise has Redis asked whenever they double, which is 32 times at most. A cost
        // that never fits has nothing to wait for.
        let is_known = charge.cost <= self.known_cost || charge.cost > self.quota.max();
        let now = self.now(local, valid_for).filter(|_| is_known)?;
        Some((now, self.counter.peek(&self.quota, Ask::of(charge), now)))
    }

    /// Whether the counter would deny a charge, if nothing has changed since it was asked too long ago.
    fn would_deny(&self, charge: &Charge<'_>, local: Passed) -> bool {
        self.peek(charge, local, Passed::MAX).is_some_and(|(_, outcome)| !outcome.is_admitted())
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
    let known_for = match outcome.retry() {
        Some(Retry::After(wait)) => wait,
        None | Some(Retry::Never) => outcome.refill_after(),
    };
    Some(decided.saturating_add(known_for))
}

impl Shard {
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
            valid_for: nanos(config.denial_cache_ttl),
            max_per_shard: config.denial_cache_capacity.div_ceil(SHARDS),
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

    /// What is known of a request: one charge that does not fit is enough to deny it.
    ///
    /// If Redis was always asked about other rules whose counters are not known, a caller over its limit could
    /// have it asked each time, by naming another key for another rule. So it is asked only so often, and
    /// otherwise they are reported with a full budget.
    pub(crate) fn lookup(self: &Arc<Self>, charges: &[Charge<'_>]) -> Lookup {
        while !self.is_empty() {
            let local = self.passed();
            let mut known: SmallVec<[Option<Said>; 4]> = SmallVec::new();
            let (mut denied, mut stale, mut seen) = (None, None, Seen::default());
            for charge in charges {
                let hash = self.names.hash(charge.rule, charge.key);
                // A request that charges a counter twice is rare, and what it is told depends on both charges.
                if charges.len() > 1 && !seen.insert(hash) {
                    return Lookup::Ask;
                }
                let mut shard = self.shard(hash);
                let entry = shard.entries.get(&hash);
                if entry.is_some_and(|entry| entry.quota != *charge.quota) {
                    // Redis has to be asked, which keeps the count of both.
                    shard.entries.remove(&hash);
                    return Lookup::Ask;
                }
                let said = entry.and_then(|entry| entry.peek(charge, local, self.valid_for));
                if let Some((now, _)) = said.filter(|(_, outcome)| !outcome.is_admitted()) {
                    denied = denied.or(Some((hash, now)));
                } else if entry.is_some_and(|entry| entry.would_deny(charge, local)) {
                    stale = stale.or(Some(hash));
                }
                known.push(said);
            }
            if let Some((hash, now)) = denied {
                if known.iter().any(Option::is_none) && self.may_ask_more(hash, local) {
                    return Lookup::Ask;
                }
                let mut decision = Decision::new(now);
                for (charge, said) in charges.iter().zip(known) {
                    let whole = || Counter::new(charge.quota).peek(charge.quota, Ask::of(charge), now);
                    decision.push(charge.rule, said.map_or_else(whole, |(_, outcome)| outcome));
                }
                return Lookup::Denied(decision);
            }
            let Some(hash) = stale else { return Lookup::Ask };
            let mut shard = self.shard(hash);
            let Some(entry) = shard.entries.get_mut(&hash) else { return Lookup::Ask };
            if entry.now(local, self.valid_for).is_some() {
                // It was answered in the meantime.
                continue;
            }
            if let Some(question) = &entry.question {
                return Lookup::Follow(question.subscribe());
            }
            entry.question = Some(watch::Sender::new(()));
            return Lookup::Lead(Question { cache: Arc::clone(self), hash });
        }
        Lookup::Ask
    }

    /// Whether Redis may be asked about other rules of a request that this counter denies. Counts the
    /// question.
    fn may_ask_more(&self, hash: u64, local: Passed) -> bool {
        let mut shard = self.shard(hash);
        let Some(entry) = shard.entries.get_mut(&hash) else { return true };
        let (count, since) = &mut entry.questions;
        if local.saturating_sub(*since) >= self.valid_for {
            (*count, *since) = (0, local);
        }
        *count = count.saturating_add(1);
        *count <= QUESTIONS
    }

    /// Remembers Redis's answer to a request. If it was denied, all of its counters are remembered; if not,
    /// those that are remembered already are updated.
    pub(crate) fn learn(
        &self,
        charges: &Charges,
        counters: &[Counter],
        places: &[usize],
        decision: &Decision,
        asked: Passed,
    ) {
        if self.is_off() || (decision.is_admitted() && self.is_empty()) {
            return;
        }
        let mut seen = Seen::default();
        let charged = charges.iter().zip(places).zip(decision.outcomes());
        let mut charged: SmallVec<[_; 4]> =
            charged.filter(|((_, place), _)| seen.insert(**place as u64)).collect();
        // Those that deny come last: whoever finds them finds the others, too.
        charged.sort_by_key(|(_, (_, outcome))| !outcome.is_admitted());
        for ((charge, place), (_, outcome)) in charged {
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
            let known_cost = match (charge.quota.algorithm(), outcome.retry()) {
                (Algorithm::SlidingLog, None) => cost,
                (Algorithm::SlidingLog, Some(Retry::After(_))) => {
                    cost.checked_next_power_of_two().unwrap_or(u32::MAX)
                }
                (Algorithm::SlidingLog, Some(Retry::Never)) => 0,
                _ => u32::MAX,
            };
            let (counter, quota, decided) = (counters[*place].clone(), charge.quota, decision.at());
            let until = known_until(&quota, outcome, decided);
            let questions = shard.entries.get(&hash).map_or((0, asked), |before| before.questions);
            let entry =
                Entry { counter, quota, known_cost, asked, decided, until, questions, question: None };
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
