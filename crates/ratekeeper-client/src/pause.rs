//! A pause that several processes share.
//!
//! It is a token bucket in their store that holds five minutes, in microseconds. Every request takes a
//! microsecond. A pause takes everything that is there, and its length on credit, so that until it has passed
//! the bucket is empty and a charge says how much of it is left.

use std::time::Duration;

use ratekeeper_core::{
    Charge, Debit, Decision, KeyRef, Outcome, Quota, Retry, RuleName, SECOND, Store, StoreError,
};

use crate::quota::rule;

/// The longest pause that is shared.
const MAX: Duration = Duration::from_secs(300);
const BUCKET: Quota = Quota::token_bucket(300_000_000, MAX);
/// Processes that are refused at the same moment would add up their pauses. Only one of them makes it.
const ONE_WRITER: Quota = Quota::token_bucket(1, SECOND);

#[derive(Debug)]
pub(crate) struct SharedPause {
    bucket: RuleName,
    writer: RuleName,
}

impl SharedPause {
    pub(crate) fn new() -> Self {
        Self { bucket: rule("client-pause"), writer: rule("client-pause-writer") }
    }

    /// A charge that is denied during a pause.
    pub(crate) fn charge<'a>(&self, key: impl Into<KeyRef<'a>>) -> Charge<'a> {
        Charge::new(self.bucket, key, &BUCKET)
    }

    /// What is left of a pause, if a decision shows one.
    pub(crate) fn check(&self, decision: &Decision) -> Result<(), Duration> {
        let outcome = decision.outcome(self.bucket.as_str());
        match outcome.and_then(Outcome::retry) {
            None => Ok(()),
            Some(retry) => Err(retry.after().unwrap_or(MAX)),
        }
    }

    /// Makes everyone wait, unless they wait for that long already.
    pub(crate) async fn start(&self, store: &dyn Store, key: &str, wait: Duration) -> Result<(), StoreError> {
        let writer = store.charge(&[Charge::new(self.writer, key, &ONE_WRITER)]);
        if !writer.await?.is_admitted() {
            return Ok(());
        }
        let charge = self.charge(key);
        let now = store.peek(&[charge]).await?;
        let left = now.retry().and_then(Retry::after).unwrap_or_default();
        let Some(missing) = wait.min(MAX).checked_sub(left) else { return Ok(()) };
        let there = now.outcome(self.bucket.as_str()).map_or(0, Outcome::remaining);
        let cost = u32::try_from(missing.as_micros()).unwrap_or(u32::MAX).saturating_add(there);
        store.debit(&[Debit::new(charge.cost(cost))]).await
    }
}
