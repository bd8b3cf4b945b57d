//! Stores that are slow or fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratekeeper::store::{Debit, KeyRef, Refund, RuleName, StoreErrorKind};
use ratekeeper::{Decision, Outcome, Store, StoreError, store::Charge};
use ratekeeper_core::Answer;

use crate::support::{Memory, START};

/// A store that answers after a delay.
#[derive(Clone, Debug)]
pub(crate) struct Slow {
    pub(crate) store: Memory,
    pub(crate) after: Duration,
}

impl Store for Slow {
    fn charge(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        let (answer, after) = (self.store.decide(charges), self.after);
        Answer::later(async move {
            tokio::time::sleep(after).await;
            Ok(answer)
        })
    }

    fn peek(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        self.store.peek(charges)
    }

    fn refund(&self, refunds: &[Refund<'_>]) -> Answer<()> {
        self.store.refund(refunds)
    }

    fn debit(&self, charges: &[Debit<'_>]) -> Answer<()> {
        self.store.debit(charges)
    }

    fn reset(&self, rule: RuleName, key: KeyRef<'_>) -> Answer<()> {
        self.store.reset(rule, key)
    }
}

/// A store that fails, immediately or after a delay.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failing {
    pub(crate) kind: StoreErrorKind,
    pub(crate) after: Option<Duration>,
}

impl Failing {
    fn error(self) -> StoreError {
        StoreError::new(self.kind).with_source("the cable was cut at redis.internal:6379")
    }
}

impl Store for Failing {
    fn charge(&self, _: &[Charge<'_>]) -> Answer<Decision> {
        let error = self.error();
        match self.after {
            None => Answer::Now(Err(error)),
            Some(after) => Answer::later(async move {
                tokio::time::sleep(after).await;
                Err(error)
            }),
        }
    }

    fn peek(&self, _: &[Charge<'_>]) -> Answer<Decision> {
        Answer::Now(Err(self.error()))
    }

    fn refund(&self, _: &[Refund<'_>]) -> Answer<()> {
        Answer::Now(Err(self.error()))
    }

    fn debit(&self, _: &[Debit<'_>]) -> Answer<()> {
        Answer::Now(Err(self.error()))
    }

    fn reset(&self, _: RuleName, _: KeyRef<'_>) -> Answer<()> {
        Answer::Now(Err(self.error()))
    }
}

/// A store that fails on demand, and does not answer immediately.
#[derive(Clone, Debug)]
pub(crate) struct Flaky {
    store: Memory,
    fails: Arc<AtomicBool>,
}

impl Flaky {
    pub(crate) fn new(store: Memory) -> Self {
        Self { store, fails: Arc::default() }
    }

    pub(crate) fn fail(&self, fails: bool) {
        self.fails.store(fails, Ordering::SeqCst);
    }

    fn answer<T>(&self, answer: impl FnOnce(&Memory) -> T) -> Result<T, StoreError> {
        let fails = self.fails.load(Ordering::SeqCst);
        if fails { Err(StoreError::new(StoreErrorKind::Unavailable)) } else { Ok(answer(&self.store)) }
    }
}

impl Store for Flaky {
    fn charge(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        let answer = self.answer(|store| store.decide(charges));
        Answer::later(async move {
            tokio::task::yield_now().await;
            answer
        })
    }

    fn peek(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        Answer::Now(self.answer(|store| store.look(charges)))
    }

    fn refund(&self, refunds: &[Refund<'_>]) -> Answer<()> {
        Answer::Now(self.answer(|store| drop(store.refund(refunds))))
    }

    fn debit(&self, charges: &[Debit<'_>]) -> Answer<()> {
        Answer::Now(self.answer(|store| drop(store.debit(charges))))
    }

    fn reset(&self, rule: RuleName, key: KeyRef<'_>) -> Answer<()> {
        Answer::Now(self.answer(|store| drop(store.reset(rule, key))))
    }
}

/// A store that always gives the same outcome for its one rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Canned(pub(crate) Outcome);

impl Canned {
    fn decision(self, charges: &[Charge<'_>]) -> Decision {
        let mut decision = Decision::new(START);
        charges.iter().for_each(|charge| decision.push(charge.rule, self.0));
        decision
    }
}

impl Store for Canned {
    fn charge(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        Answer::Now(Ok(self.decision(charges)))
    }

    fn peek(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        Answer::Now(Ok(self.decision(charges)))
    }

    fn refund(&self, _: &[Refund<'_>]) -> Answer<()> {
        Answer::Now(Ok(()))
    }

    fn debit(&self, _: &[Debit<'_>]) -> Answer<()> {
        Answer::Now(Ok(()))
    }

    fn reset(&self, _: RuleName, _: KeyRef<'_>) -> Answer<()> {
        Answer::Now(Ok(()))
    }
}
