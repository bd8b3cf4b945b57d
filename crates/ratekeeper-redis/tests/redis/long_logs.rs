//! Logs of hundreds of admissions, which Redis changes in place, match those of the algorithm.

use std::time::Duration;

use ratekeeper_core::algorithm::{self, Counter};
use ratekeeper_core::{Charge, Clock, Debit, Key, ManualClock, Quota, Receipt, Refund, Store, Timestamp};
use ratekeeper_redis::RedisStore;

use crate::support::random::{Random, cases};
use crate::support::{calls, own_server, patient, ready, rule};

const PERIOD: Duration = Duration::from_secs(60);

/// One caller, in Redis and in the algorithm.
struct Caller {
    redis: RedisStore,
    clock: ManualClock,
    key: Key,
    counter: Counter,
    quota: Quota,
    random: Random,
    last: Option<Receipt>,
    longest: u32,
}

impl Caller {
    async fn charge(&mut self, cost: u32, place: &str) {
        let charges = [Charge::new(rule("log"), &self.key, &self.quota).cost(cost)];
        let now = self.clock.now();
        let expected = algorithm::decide(std::slice::from_mut(&mut self.counter), &[0], &charges, now);
        let decided = self.redis.charge(&charges).await;
        let decided = decided.unwrap_or_else(|error| panic!("{place}: {error:?}"));
        assert_eq!(decided, expected, "redis (left), {place}: {cost} of {}", self.quota);
        let (_, outcome) = decided.outcomes().next().expect("there is one rule");
        self.longest = self.longest.max(outcome.limit() - outcome.remaining());
        if decided.is_admitted() {
            self.last = Some(Receipt::new(now, outcome.reset_after()));
        }
    }

    async fn peek(&self, place: &str) {
        let charges = [Charge::new(rule("log"), &self.key, &self.quota)];
        let expected = algorithm::peek(std::slice::from_ref(&self.counter), &[0], &charges, self.clock.now());
        assert_eq!(self.redis.peek(&charges).await.expect("redis looks"), expected, "redis (left), {place}");
    }

    async fn refund(&mut self, cost: u32) {
        let receipt = self.last.filter(|_| self.random.once_in(2));
        let refund = Refund::new(rule("log"), &self.key, cost);
        let refund = receipt.map_or(refund, |receipt| refund.receipt(receipt));
        self.counter.refund(cost, receipt, self.clock.now());
        self.redis.refund(&[refund]).await.expect("redis gives back");
    }

    async fn debit(&mut self, cost: u32) {
        let charge = Charge::new(rule("log"), &self.key, &self.quota).cost(cost);
        self.counter.debit(&self.quota, cost, None, self.clock.now());
        self.redis.debit(&[Debit::new(charge)]).await.expect("redis takes what is due");
    }

    async fn step(&mut self, place: &str) {
        let usual = PERIOD.as_micros() as u64 / 150;
        self.clock.advance(Duration::from_micros(self.random.below(usual)));
        match self.random.below(200) {
            0 => self.refund(1).await,
            1 => self.refund(5).await,
            2 => self.debit(2).await,
            3 => self.clock.advance(PERIOD / 3),
            4 if self.random.once_in(4) => self.clock.advance(2 * PERIOD),
            5 => self.clock.set(self.clock.now().saturating_sub(PERIOD / 4)),
            6 => {
                let others =
                    [(300, PERIOD), (200, PERIOD), (60_000, PERIOD), (300, 2 * PERIOD), (300, PERIOD / 2)];
                let (limit, period) = self.random.of(&others);
                self.quota = Quota::sliding_log(limit, period);
            }
            7 if self.random.once_in(8) => self.quota = Quota::token_bucket(300, PERIOD),
            8..=11 => self.peek(place).await,
            12..=20 => self.charge(300, place).await,
            21..=30 => {
                let cost = self.random.below(4) as u32;
                self.charge(cost, place).await;
                self.charge(1, place).await;
            }
            _ => self.charge(1, place).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_logs_are_those_of_the_algorithm() {
    let server = own_server();
    let clock = ManualClock::new(Timestamp::from_secs(1_700_000_000));
    let store = patient(&server).clock(clock.clone()).denial_cache_ttl(Duration::ZERO);
    let redis = ready(store).await;
    let mut longest = 0;
    for seed in cases(4) {
        let quota = Quota::sliding_log(300, PERIOD);
        let mut caller = Caller {
            redis: redis.clone(),
            clock: clock.clone(),
            key: Key::from(seed),
            counter: Counter::new(&quota),
            quota,
            random: Random::new(seed),
            last: None,
            longest: 0,
        };
        for step in 0..3_000 {
            caller.step(&format!("seed {seed}, step {step}")).await;
        }
        longest = longest.max(caller.longest);
    }
    assert!(longest > 250, "{longest}");
    let in_place = calls(&server, "pexpireat");
    assert!(in_place > Some(500), "many are changed where they are: {in_place:?}");
}

/// A caller that comes rarely does not use the memory of one that comes often.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_becomes_short_takes_little_again() {
    let server = own_server();
    let clock = ManualClock::new(Timestamp::from_secs(1_700_000_000));
    let redis = ready(patient(&server).clock(clock.clone())).await;
    let (key, quota) = (Key::from("alice"), Quota::sliding_log(2_000, PERIOD));
    let length = || match server.command(&["STRLEN", "ratekeeper:log:{alice}"]).expect("it answers") {
        redis::Value::Int(length) => length,
        other => panic!("{other:?}"),
    };
    for _ in 0..1_000 {
        clock.advance(Duration::from_micros(10));
        redis.charge(&[Charge::new(rule("log"), &key, &quota)]).await.expect("redis decides");
    }
    let long = length();
    assert!((9_000..11_000).contains(&long), "{long}");
    clock.advance(PERIOD - Duration::from_millis(1));
    for _ in 0..3 {
        clock.advance(Duration::from_millis(1));
        redis.charge(&[Charge::new(rule("log"), &key, &quota)]).await.expect("redis decides");
    }
    assert!(length() < 100, "{}", length());
}

/// What a denied caller is told is exact, however its costs rise, and Redis is asked only when they double.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wait_for_a_rising_cost_is_exact() {
    let server = own_server();
    let clock = ManualClock::new(Timestamp::from_secs(1_700_000_000));
    let redis = ready(patient(&server).clock(clock.clone())).await;
    let (key, quota) = (Key::from("alice"), Quota::sliding_log(300, PERIOD));
    let mut counter = Counter::new(&quota);
    for _ in 0..300 {
        clock.advance(Duration::from_micros(60_017));
        redis.charge(&[Charge::new(rule("log"), &key, &quota)]).await.expect("redis decides");
        counter.charge(&quota, 1, clock.now());
    }
    let before = calls(&server, "evalsha").expect("it answers");
    for cost in 1..=300 {
        let charges = [Charge::new(rule("log"), &key, &quota).cost(cost)];
        let decided = redis.charge(&charges).await.expect("it is decided");
        let expected = algorithm::decide(std::slice::from_mut(&mut counter), &[0], &charges, clock.now());
        assert_eq!(decided, expected, "{cost}");
    }
    let asked = calls(&server, "evalsha").expect("it answers") - before;
    assert!((2..=12).contains(&asked), "{asked} questions");
}
