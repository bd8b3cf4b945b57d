//! What every case starts from.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use ratekeeper_core::{
    Charge, Debit, Decision, Key, Outcome, Quota, Receipt, Refund, Retry, RuleName, Store, Timestamp,
};

use crate::Harness;

pub(crate) const MICRO: Duration = Duration::from_micros(1);

/// Where every case starts: at the edge of a minute, far from the epoch.
const START: Timestamp = Timestamp::from_secs(1_700_000_040);

/// One quota of each algorithm.
pub(crate) fn each(limit: u32, period: Duration) -> [Quota; 5] {
    [
        Quota::token_bucket(limit, period),
        Quota::fixed_window(limit, period),
        Quota::sliding_window(limit, period),
        Quota::sliding_log(limit, period),
        Quota::leaky_bucket(limit, period),
    ]
}

/// How long a denied charge has to wait.
pub(crate) fn wait(outcome: &Outcome) -> Duration {
    outcome.retry().and_then(Retry::after).unwrap_or_else(|| panic!("not told to wait: {outcome:?}"))
}

/// A store at [`START`], with rules that nobody else uses.
pub(crate) struct Bench<H: Harness> {
    pub(crate) harness: H,
    pub(crate) store: H::Store,
    unique: u64,
}

impl<H: Harness> Bench<H> {
    pub(crate) async fn new(harness: H) -> Self {
        harness.set(START).await;
        // Random, because others may use the same server at the same time.
        Self { store: harness.store(), harness, unique: RandomState::new().hash_one(0) }
    }

    pub(crate) fn rule(&self, name: &str) -> RuleName {
        RuleName::new(&format!("{:016x}-{name}", self.unique)).expect("rule names of cases are valid")
    }

    /// A caller under a rule that is named after the quota.
    pub(crate) fn caller(&self, quota: Quota) -> Caller<'_, H> {
        self.caller_under(self.rule(&quota.to_string().replace(' ', "-")), quota)
    }

    pub(crate) fn caller_under(&self, rule: RuleName, quota: Quota) -> Caller<'_, H> {
        Caller { bench: self, rule, key: Key::from("alice"), quota }
    }

    /// Sets the time to `since_start` after the start.
    pub(crate) async fn at(&self, since_start: Duration) {
        self.harness.set(START.saturating_add(since_start)).await;
    }

    pub(crate) async fn advance(&self, by: Duration) {
        self.harness.advance(by).await;
    }

    pub(crate) async fn step_back(&self, by: Duration) {
        let now = self.harness.now().await;
        self.harness.set(now.saturating_sub(by)).await;
    }

    pub(crate) async fn charge(&self, charges: &[Charge<'_>]) -> Decision {
        let decision = self.store.charge(charges).await.expect("the store decides");
        assert_eq!(decision.at(), self.harness.now().await, "decided at the time of the store");
        assert!(
            decision.outcomes().map(|(rule, _)| rule).eq(charges.iter().map(|charge| charge.rule)),
            "one outcome for each charge, in their order"
        );
        decision
    }

    pub(crate) async fn peek(&self, charges: &[Charge<'_>]) -> Decision {
        self.store.peek(charges).await.expect("the store answers")
    }

    pub(crate) async fn refund(&self, refunds: &[Refund<'_>]) {
        self.store.refund(refunds).await.expect("the store gives back");
    }

    pub(crate) async fn debit(&self, debits: &[Debit<'_>]) {
        self.store.debit(debits).await.expect("the store takes what is due");
    }
}

/// One key under one rule.
pub(crate) struct Caller<'a, H: Harness> {
    pub(crate) bench: &'a Bench<H>,
    pub(crate) rule: RuleName,
    pub(crate) key: Key,
    pub(crate) quota: Quota,
}

impl<H: Harness> Caller<'_, H> {
    pub(crate) fn with_key(self, key: impl Into<Key>) -> Self {
        Self { key: key.into(), ..self }
    }

    pub(crate) fn cost(&self, cost: u32) -> Charge<'_> {
        Charge::new(self.rule, &self.key, &self.quota).cost(cost)
    }

    pub(crate) async fn charge(&self, cost: u32) -> Outcome {
        let decision = self.bench.charge(&[self.cost(cost)]).await;
        only(&decision)
    }

    pub(crate) async fn peek(&self, cost: u32) -> Outcome {
        let decision = self.bench.peek(&[self.cost(cost)]).await;
        only(&decision)
    }

    /// Makes a charge that must fit.
    pub(crate) async fn take(&self, cost: u32) -> Receipt {
        let decision = self.bench.charge(&[self.cost(cost)]).await;
        assert!(decision.is_admitted(), "{cost} of {}: {decision:?}", self.quota);
        Receipt::of(&decision, self.rule).expect("an admitted charge has a receipt")
    }

    /// Charges one at a time until one is denied, and returns how many were not.
    pub(crate) async fn drain(&self) -> u32 {
        for admitted in 0.. {
            if !self.charge(1).await.is_admitted() {
                return admitted;
            }
        }
        unreachable!("no quota is as large as that")
    }

    pub(crate) async fn remaining(&self) -> u32 {
        self.peek(1).await.remaining()
    }

    pub(crate) async fn refund(&self, cost: u32, receipt: Option<Receipt>) {
        let refund = Refund::new(self.rule, &self.key, cost);
        let refund = receipt.map_or(refund, |receipt| refund.receipt(receipt));
        self.bench.refund(&[refund]).await;
    }

    pub(crate) async fn debit(&self, cost: u32) {
        self.bench.debit(&[Debit::new(self.cost(cost))]).await;
    }

    /// Comes back when told to, until the whole quota fits, and returns how long that took. `also` is charged
    /// in the same requests.
    pub(crate) async fn time_locked(&self, also: Option<&Self>) -> Duration {
        let mut waited = Duration::ZERO;
        for _ in 0..100 {
            let callers = [Some(self), also].into_iter().flatten();
            let charges: Vec<_> = callers.map(|caller| caller.cost(caller.quota.max())).collect();
            let Some(retry) = self.bench.charge(&charges).await.retry() else { return waited };
            let wait = retry.after().expect("the whole quota fits at some time");
            self.bench.advance(wait).await;
            waited += wait;
        }
        panic!("denied a hundred times, having waited as told: {}", self.quota);
    }

    pub(crate) async fn reset(&self) {
        self.bench.store.reset(self.rule, (&self.key).into()).await.expect("the store resets");
    }
}

fn only(decision: &Decision) -> Outcome {
    let mut outcomes = decision.outcomes();
    match (outcomes.next(), outcomes.next()) {
        (Some((_, outcome)), None) => {
            assert_eq!(decision.is_admitted(), outcome.is_admitted());
            assert!(outcome.remaining() <= outcome.limit());
            *outcome
        }
        _ => panic!("one charge has one outcome: {decision:?}"),
    }
}
