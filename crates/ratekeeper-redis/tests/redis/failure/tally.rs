//! Charging a key, and recording what happens.

use std::time::{Duration, Instant};

use ratekeeper_core::{Charge, DAY, Decision, Key, Quota, RuleName, Store, StoreError, StoreErrorKind};
use ratekeeper_redis::RedisStore;

use super::{DEADLINE, MARGIN, story};
use crate::support::PATIENCE;

/// A quota that is never used up, and that does not come back while a test runs.
pub(crate) const PLENTY: u32 = 1_000_000_000;

/// A caller to be charged: a key under a rule.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    rule: RuleName,
    key: Key,
    quota: Quota,
}

/// What happened to charges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) admitted: u32,
    pub(crate) denied: u32,
    pub(crate) timeout: u32,
    pub(crate) unavailable: u32,
    pub(crate) protocol: u32,
    /// The longest wait.
    pub(crate) longest: Duration,
    /// The last error.
    pub(crate) last_error: String,
}

impl Caller {
    pub(crate) fn new(key: &str) -> Self {
        let quota = Quota::fixed_window(PLENTY, 30 * DAY);
        Self { rule: RuleName::new("failure").expect("a name"), key: Key::from(key), quota }
    }

    /// The same caller with this limit.
    pub(crate) fn with_only(self, limit: u32) -> Self {
        Self { quota: Quota::fixed_window(limit, 30 * DAY), ..self }
    }

    pub(crate) fn charge_of(&self) -> Charge<'_> {
        Charge::new(self.rule, &self.key, &self.quota)
    }

    pub(crate) async fn charge(&self, store: &RedisStore) -> Result<Decision, StoreError> {
        store.charge(&[self.charge_of()]).await
    }

    /// Charges, and records what happens.
    pub(crate) async fn tally(&self, store: &RedisStore, tally: &mut Tally) {
        let start = Instant::now();
        let decided = self.charge(store).await;
        tally.add(start.elapsed(), &decided);
    }

    /// Charges this many times at once.
    pub(crate) async fn tally_many(&self, store: &RedisStore, times: usize) -> Tally {
        let charging = (0..times).map(|_| {
            let (caller, store) = (self.clone(), store.clone());
            tokio::spawn(async move {
                let mut tally = Tally::default();
                caller.tally(&store, &mut tally).await;
                tally
            })
        });
        let mut all = Tally::default();
        for one in futures_util::future::join_all(charging).await {
            all.join(one.expect("nothing panics"));
        }
        all
    }

    /// Charges until it is admitted: a busy machine may keep a working server from answering in time.
    pub(crate) async fn be_admitted(&self, store: &RedisStore) {
        let start = Instant::now();
        loop {
            store.ready(PATIENCE).await.expect("it works");
            match self.charge(store).await {
                Ok(decision) => return assert!(decision.is_admitted(), "{decision:?}"),
                Err(error) if start.elapsed() > PATIENCE => panic!("{}", story(&error)),
                Err(_) => {}
            }
        }
    }

    /// What Redis has counted. Peeking changes nothing, so it can be repeated if the machine was too busy.
    pub(crate) async fn counted(&self, store: &RedisStore) -> u32 {
        let start = Instant::now();
        let decision = loop {
            store.ready(PATIENCE).await.expect("it works");
            match store.peek(&[self.charge_of()]).await {
                Ok(decision) => break decision,
                Err(error) if start.elapsed() > PATIENCE => panic!("{}", story(&error)),
                Err(_) => {}
            }
        };
        let (_, outcome) = decision.outcomes().next().expect("there is one rule");
        outcome.limit() - outcome.remaining()
    }
}

impl Tally {
    fn add(&mut self, waited: Duration, decided: &Result<Decision, StoreError>) {
        self.longest = self.longest.max(waited);
        match decided {
            Ok(decision) if decision.is_admitted() => self.admitted += 1,
            Ok(_) => self.denied += 1,
            Err(error) => {
                match error.kind() {
                    StoreErrorKind::Timeout => self.timeout += 1,
                    StoreErrorKind::Protocol => self.protocol += 1,
                    _ => self.unavailable += 1,
                }
                self.last_error = story(error);
            }
        }
    }

    pub(crate) fn join(&mut self, other: Self) {
        self.admitted += other.admitted;
        self.denied += other.denied;
        self.timeout += other.timeout;
        self.unavailable += other.unavailable;
        self.protocol += other.protocol;
        self.longest = self.longest.max(other.longest);
        if !other.last_error.is_empty() {
            self.last_error = other.last_error;
        }
    }

    pub(crate) fn failed(&self) -> u32 {
        self.timeout + self.unavailable + self.protocol
    }

    /// Asserts that no request has waited for too long, and none was denied that had plenty.
    pub(crate) fn assert_orderly(&self) {
        assert!(self.longest < DEADLINE + MARGIN, "{self:?}");
        assert_eq!(self.denied, 0, "{self:?}");
    }
}
