//! One timeline, followed by Redis, by memory, and by the algorithms themselves.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use ratekeeper_core::algorithm::{self, Counter};
use ratekeeper_core::{
    Charge, Clock, DAY, Debit, Decision, Key, ManualClock, MemoryStore, Quota, Receipt, Refund, RuleName,
    SECOND, Store, Timestamp,
};
use ratekeeper_redis::RedisStore;

use crate::support::random::Random;
use crate::support::{patient, ready, rule, shared_server};

/// What happens in a timeline.
#[derive(Clone, Copy, Debug)]
pub(crate) enum About {
    /// The clock steps back at any time. The in-memory store does not take part: it settles what was set back
    /// when it sweeps, so its answers depend on when that happens.
    StepsBack,
    /// The clock steps back, and all counters are asked right afterwards.
    StepsBackAndSettles,
    /// The clock goes forwards, and what was denied is denied from memory. (Then Redis does not know that it
    /// was asked, which makes a difference after a step back.)
    DeniedFromMemory,
}

/// One charge: rule, key, cost, and how long its caller will wait.
type One = (usize, usize, u32, Option<Duration>);

/// A timeline.
pub(crate) struct Timeline {
    about: About,
    seed: u64,
    step: usize,
    random: Random,
    clock: ManualClock,
    redis: RedisStore,
    /// Another node on the same counters.
    elsewhere: RedisStore,
    memory: Option<MemoryStore<ManualClock>>,
    model: HashMap<(RuleName, Key), Counter>,
    rules: Vec<(RuleName, Quota)>,
    /// The quota that each rule had before.
    former: Vec<Quota>,
    /// Whether both are in use at once.
    at_once: bool,
    keys: Vec<Key>,
    receipts: VecDeque<(One, Receipt)>,
    /// What was done last, for debugging.
    history: VecDeque<String>,
}

impl Timeline {
    pub(crate) async fn new(seed: u64, about: About) -> Self {
        let mut random = Random::new(seed);
        if !random.once_in(3) {
            random.focus();
        }
        let clock = ManualClock::new(Timestamp::from_micros(1_700_000_000_000_000 + random.below(1 << 45)));
        let denial_cache_ttl = if matches!(about, About::DeniedFromMemory) { SECOND } else { Duration::ZERO };
        let prefix = format!("{about:?}-{seed}");
        let store = || patient(shared_server()).clock(clock.clone()).prefix(prefix.as_str());
        let memory = MemoryStore::builder().max_keys(1_000).clock(clock.clone()).build();
        Self {
            about,
            seed,
            step: 0,
            redis: ready(store().denial_cache_ttl(denial_cache_ttl)).await,
            elsewhere: ready(store()).await,
            memory: (!matches!(about, About::StepsBack)).then_some(memory),
            model: HashMap::new(),
            rules: (0..4).map(|i| (rule(&format!("rule-{i}")), random.quota())).collect(),
            former: (0..4).map(|_| random.quota()).collect(),
            at_once: random.once_in(2),
            keys: ["alice", "bob"].map(Key::from).into(),
            receipts: VecDeque::new(),
            history: VecDeque::new(),
            random,
            clock,
        }
    }

    /// Runs this many steps.
    pub(crate) async fn run(mut self, steps: usize) {
        while self.step < steps {
            self.step += 1;
            match self.random.below(100) {
                0..=58 => self.charge().await,
                59..=66 => self.peek().await,
                67..=73 => self.debit().await,
                74..=82 => self.refund().await,
                83 | 84 => self.reset().await,
                85..=89 => self.change_a_quota(),
                90..=93 => self.expire().await,
                94..=96 if !matches!(self.about, About::DeniedFromMemory) => self.step_back().await,
                _ => self.pause().await,
            }
        }
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn note(&mut self, what: &str) {
        if self.history.len() == 40 {
            self.history.pop_front();
        }
        self.history.push_back(format!("{}  {what}", self.now()));
    }

    /// The seed, the kind, the step and the recent history.
    fn place(&self) -> String {
        let history: Vec<_> = self.history.iter().map(String::as_str).collect();
        format!("seed {}, {:?}, step {}:\n{}", self.seed, self.about, self.step, history.join("\n"))
    }

    /// One to four charges; sometimes two on the same counter.
    fn request(&mut self) -> Vec<One> {
        if self.at_once {
            for ((_, quota), former) in self.rules.iter_mut().zip(&mut self.former) {
                if self.random.once_in(2) {
                    std::mem::swap(quota, former);
                }
            }
        }
        let count = self.random.of(&[1, 1, 1, 1, 1, 2, 3, 4]);
        (0..count)
            .map(|_| {
                let rule = self.random.below(self.rules.len() as u64) as usize;
                let key = self.random.below(self.keys.len() as u64) as usize;
                let quota = self.rules[rule].1;
                let wait = self.random.once_in(3).then(|| self.random.patience(&quota));
                (rule, key, self.random.cost(&quota), wait)
            })
            .collect()
    }

    fn charges<'a>(&'a self, request: &[One]) -> Vec<Charge<'a>> {
        let charge = |&(rule, key, cost, wait): &One| {
            let (name, quota) = &self.rules[rule];
            let charge = Charge::new(*name, &self.keys[key], quota).cost(cost);
            wait.map_or(charge, |wait| charge.wait_up_to(wait))
        };
        request.iter().map(charge).collect()
    }

    fn shown(&self, request: &[One]) -> String {
        let one = |&(rule, key, cost, wait): &One| {
            format!("{cost} of {rule} ({:?}) to {key}, waiting {wait:?}", self.rules[rule].1)
        };
        request.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// What the algorithms decide.
    fn modelled(&mut self, request: &[One], peek: bool) -> Decision {
        let now = self.now();
        let mut names: Vec<(RuleName, Key)> = Vec::new();
        let mut counters = Vec::new();
        let mut places = Vec::new();
        for (rule, key, ..) in request {
            let name = (self.rules[*rule].0, self.keys[*key]);
            let place = names.iter().position(|known| *known == name).unwrap_or_else(|| {
                names.push(name);
                let counter = self.model.get(&name).cloned();
                counters.push(counter.unwrap_or_else(|| Counter::new(&self.rules[*rule].1)));
                names.len() - 1
            });
            places.push(place);
        }
        if peek {
            return algorithm::peek(&counters, &places, &self.charges(request), now);
        }
        let decision = algorithm::decide(&mut counters, &places, &self.charges(request), now);
        for (name, counter) in names.into_iter().zip(counters) {
            // A key that was never charged does not exist yet.
            if self.model.contains_key(&name) || decision.is_admitted() {
                self.model.insert(name, counter);
            }
        }
        decision
    }

    async fn charge(&mut self) {
        if self.random.once_in(2) {
            self.pause().await;
        }
        let request = self.request();
        self.charge_all(request).await;
    }

    async fn charge_all(&mut self, request: Vec<One>) {
        self.note(&format!("charge {}", self.shown(&request)));
        let expected = self.modelled(&request, false);
        let charges = self.charges(&request);
        let decided = self.redis.charge(&charges).await;
        let decided = decided.unwrap_or_else(|error| panic!("{error:?}: {}", self.place()));
        assert_eq!(decided, expected, "redis (left), model (right), {}", self.place());
        if let Some(memory) = &self.memory {
            assert_eq!(memory.decide(&charges), expected, "memory (left), model (right), {}", self.place());
        }
        if decided.is_admitted() {
            for (one, (_, outcome)) in request.into_iter().zip(decided.outcomes()) {
                let receipt = Receipt::new(decided.at(), outcome.reset_after()).delay(outcome.delay());
                self.receipts.push_front((one, receipt));
            }
            self.receipts.truncate(20);
        }
    }

    async fn peek(&mut self) {
        self.pause().await;
        let request = self.request();
        self.note(&format!("peek {}", self.shown(&request)));
        let expected = self.modelled(&request, true);
        let charges = self.charges(&request);
        let peeked = self.redis.peek(&charges).await;
        let peeked = peeked.unwrap_or_else(|error| panic!("{error:?}: {}", self.place()));
        assert_eq!(peeked, expected, "redis (left), model (right), {}", self.place());
        if let Some(memory) = &self.memory {
            assert_eq!(memory.look(&charges), expected, "memory (left), model (right), {}", self.place());
        }
    }

    /// Refunds the last charge or an older one, once or again, all of it or more or less, to the key it was
    /// charged to or to another one, or without a receipt.
    async fn refund(&mut self) {
        if self.random.once_in(2) {
            self.pause().await;
        }
        let chosen = self.random.below(3 * self.receipts.len() as u64 + 1) as usize;
        let chosen = if chosen < self.receipts.len() { chosen } else { 0 };
        let charged = self.receipts.get(chosen).copied();
        let (mut one, mut receipt) = match charged {
            Some((one, receipt)) => (one, Some(receipt)),
            None => (self.request()[0], None),
        };
        match self.random.below(8) {
            0 => one = self.request()[0],
            1 => one.2 = one.2.saturating_sub(1),
            2 => one.2 = self.random.of(&[0, 1, u32::MAX]),
            3 | 4 => receipt = None,
            5 => receipt = Some(self.wrong_receipt()),
            _ => {}
        }
        let (rule, key, cost, _) = one;
        self.note(&format!("refund {cost} of {rule} to {key}, {receipt:?}"));
        let (name, now) = ((self.rules[rule].0, self.keys[key]), self.now());
        if let Some(counter) = self.model.get_mut(&name) {
            counter.refund(cost, receipt, now);
        }
        let refund = Refund::new(name.0, &name.1, cost);
        let refund = receipt.map_or(refund, |receipt| refund.receipt(receipt));
        let done = self.redis.refund(&[refund]).await;
        done.unwrap_or_else(|error| panic!("{error:?}: {}", self.place()));
        if let Some(memory) = &self.memory {
            memory.refund(&[refund]).await.expect("memory does not fail");
        }
    }

    /// Takes what is owed, whether or not it fits.
    async fn debit(&mut self) {
        if self.random.once_in(2) {
            self.pause().await;
        }
        // A new debit, one for an earlier charge, which may be gone, or one for a charge that was never made.
        let (request, receipt) = match (self.random.below(4), self.receipts.front().copied()) {
            (0, _) => (self.request(), Some(self.wrong_receipt())),
            (1 | 2, Some((one, receipt))) => ([one].into_iter().collect(), Some(receipt)),
            _ => (self.request(), None),
        };
        self.note(&format!("debit {}, {receipt:?}", self.shown(&request)));
        let now = self.now();
        for (rule, key, cost, _) in &request {
            let (rule, quota) = self.rules[*rule];
            let name = (rule, self.keys[*key]);
            // A debit of nothing leaves nothing behind for a key that was never charged.
            if self.model.contains_key(&name) || (*cost > 0 && quota.max() > 0) {
                self.model
                    .entry(name)
                    .or_insert_with(|| Counter::new(&quota))
                    .debit(&quota, *cost, receipt, now);
            }
        }
        let charges = self.charges(&request);
        let debits: Vec<_> = charges
            .iter()
            .map(|charge| receipt.map_or(Debit::new(*charge), |receipt| Debit::new(*charge).receipt(receipt)))
            .collect();
        let done = self.redis.debit(&debits).await;
        done.unwrap_or_else(|error| panic!("{error:?}: {}", self.place()));
        if let Some(memory) = &self.memory {
            memory.debit(&debits).await.expect("memory does not fail");
        }
    }

    fn wrong_receipt(&mut self) -> Receipt {
        let after = Duration::from_micros(self.random.below(1 << 40));
        let at = match self.random.below(4) {
            0 => Timestamp::UNIX_EPOCH,
            1 => self.now().saturating_add(after),
            2 => self.now().saturating_sub(after),
            _ => self.now(),
        };
        let reset = Duration::from_micros(self.random.below(1 << 40));
        Receipt::new(at, reset).delay(Duration::from_micros(self.random.below(1 << 30)))
    }

    async fn reset(&mut self) {
        let (rule, key, ..) = self.request()[0];
        self.note(&format!("reset {rule} of {key}"));
        self.forget((self.rules[rule].0, self.keys[key])).await;
    }

    async fn forget(&mut self, name: (RuleName, Key)) {
        self.model.remove(&name);
        self.redis.reset(name.0, (&name.1).into()).await.expect("redis resets");
        if let Some(memory) = &self.memory {
            memory.reset(name.0, (&name.1).into()).await.expect("memory does not fail");
        }
    }

    fn change_a_quota(&mut self) {
        let rule = self.random.below(self.rules.len() as u64) as usize;
        let quota = self.random.changed(&self.rules[rule].1.clone());
        self.note(&format!("quota {rule} is {quota:?}"));
        self.former[rule] = std::mem::replace(&mut self.rules[rule].1, quota);
    }

    fn expired(&self) -> Vec<(RuleName, Key)> {
        let now = self.now();
        let expired = self.model.iter().filter(|(_, counter)| counter.expires_at() <= now);
        let mut expired: Vec<_> = expired.map(|(name, _)| *name).collect();
        // In an order that is the same in each run.
        expired.sort_unstable_by_key(|(rule, key)| (rule.as_str(), key.to_string()));
        expired
    }

    /// Redis drops something that has expired, without notifying the store.
    async fn expire(&mut self) {
        for name in self.expired() {
            if self.random.once_in(2) {
                self.note(&format!("{} of {} expires", name.0, name.1));
                self.elsewhere.reset(name.0, (&name.1).into()).await.expect("redis resets");
            }
        }
    }

    /// A pause that matters to one of the quotas.
    async fn pause(&mut self) {
        let (_, quota) = self.random.of(&self.rules);
        let pause = self.random.pause(&quota);
        self.clock.advance(pause);
        if pause > 10 * DAY {
            // Memory keeps 32 bits of a window's number; what it should have swept would look new.
            for name in self.expired() {
                self.forget(name).await;
            }
        }
    }

    async fn step_back(&mut self) {
        // What has expired may have been forgotten, and must not return with the clock.
        for name in self.expired() {
            self.forget(name).await;
        }
        let (_, quota) = self.random.of(&self.rules);
        let by = self.random.step_back(&quota);
        self.clock.set(self.now().saturating_sub(by));
        self.note(&format!("the clock was set back by {by:?}"));
        if matches!(self.about, About::StepsBackAndSettles) {
            let rules = 0..self.rules.len();
            let all = rules.flat_map(|rule| (0..self.keys.len()).map(move |key| (rule, key, u32::MAX, None)));
            self.charge_all(all.collect()).await;
            // Under an invalid quota nothing is settled, except by the in-memory store, whenever it sweeps.
            for rule in 0..self.rules.len() {
                let (name, quota) = self.rules[rule];
                for key in 0..self.keys.len() {
                    if quota.max() == 0 {
                        self.forget((name, self.keys[key])).await;
                    }
                }
            }
        }
    }
}
