//! The store.

mod builder;
mod servers;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{
    Answer, Charge, Debit, Decision, KeyRef, Refund, RuleName, Store, StoreError, StoreId,
};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};

pub use self::builder::RedisStoreBuilder;
pub use self::servers::{IntoClient, Servers};
use crate::cluster::Connections;
use crate::config::Config;
use crate::connection::BreakerState;
use crate::denial_cache::{DenialCache, Lookup};
use crate::error::{SetupError, unavailable};
use crate::name::Counted;
use crate::request::pending::{PendingReply, all, make};
use crate::request::settlement::{Settlement, What};
use crate::request::{Charges, Kind, OwnCharge, SETTLE_TIMEOUT};

/// How many charges a request may have. No application has as many rules, and each takes a two-byte number in
/// the question.
const MOST_CHARGES: usize = 10_000;

/// A store in Redis or Valkey: one budget for all processes that use the same servers and the same prefix.
///
/// Clones share the same store. See the [crate docs](crate) for its guarantees.
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<Inner>,
}

struct Inner {
    config: Config,
    denied: Arc<DenialCache>,
    connections: Connections,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.connections.close();
    }
}

impl RedisStore {
    /// Creates a store on one server, with default settings.
    ///
    /// This does not wait for a connection, which is made in the background. Until there is one, every
    /// decision fails and the failure policy of each rule applies. Use [`ready`](Self::ready) to wait.
    ///
    /// # Errors
    ///
    /// If the address is invalid, or there is no tokio runtime.
    pub fn new(address: impl IntoClient) -> Result<Self, SetupError> {
        Self::builder(Servers::one(address)?).build()
    }

    /// Starts building a store.
    pub fn builder(servers: Servers) -> RedisStoreBuilder {
        RedisStoreBuilder::new(servers)
    }

    pub(crate) fn start(connections: Connections, config: Config, denied: Arc<DenialCache>) -> Self {
        Self { inner: Arc::new(Inner { config, denied, connections }) }
    }

    /// Whether Redis is asked, or known not to work. On a cluster, the breaker is open while any node with
    /// slots fails; keys on the other nodes are still decided.
    #[must_use]
    pub fn breaker(&self) -> BreakerState {
        self.inner.connections.breaker().watch().borrow().clone()
    }

    /// Watches changes of the [breaker](Self::breaker).
    #[must_use]
    pub fn watch_breaker(&self) -> watch::Receiver<BreakerState> {
        self.inner.connections.breaker().watch()
    }

    /// Waits until Redis works; on a cluster, until all nodes that have slots do.
    ///
    /// # Errors
    ///
    /// If it does not within `patience`; the error is the most recent one.
    pub async fn ready(&self, patience: Duration) -> Result<(), StoreError> {
        let mut states = self.watch_breaker();
        let closed = tokio::time::timeout(patience, states.wait_for(|state| !state.is_open())).await;
        match closed {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => match self.breaker() {
                BreakerState::Closed => Ok(()),
                BreakerState::Open { error, .. } => Err(error),
            },
        }
    }

    /// The answer to a request that has nothing to ask about, or too much.
    fn answer_without_asking(&self, charges: &[Charge<'_>]) -> Option<Result<Decision, StoreError>> {
        match charges.len() {
            0 => Some(Ok(Decision::new(self.inner.denied.now()))),
            1..=MOST_CHARGES => None,
            _ => Some(Err(unavailable("a request may have at most 10,000 charges in Redis"))),
        }
    }

    fn own(&self, charges: &[Charge<'_>]) -> Charges {
        charges.iter().map(|charge| OwnCharge::new(charge, &self.inner.config.names)).collect()
    }

    /// Waits for the answer to a question about one of the counters, which will probably deny this request as
    /// well; but no longer than leaves time to ask.
    async fn follow(
        self,
        mut question: watch::Receiver<()>,
        charges: Charges,
        deadline: Instant,
    ) -> Result<Decision, StoreError> {
        drop(timeout_at(deadline - self.inner.config.timeout / 2, question.changed()).await);
        let by_ref: Vec<Charge<'_>> = charges.iter().map(OwnCharge::by_ref).collect();
        let lookup = self.inner.denied.lookup(&by_ref);
        drop(by_ref);
        if let Lookup::Denied(denied) = lookup {
            self.inner.config.watch.denied_from_memory();
            return Ok(denied);
        }
        let answer = self.inner.connections.ask(charges, deadline, false).await;
        drop(lookup);
        answer
    }

    /// How long an operation may take that no incoming request waits for.
    fn settle_timeout(&self) -> Duration {
        self.inner.config.timeout.max(SETTLE_TIMEOUT)
    }

    fn counted(&self, rule: RuleName, key: KeyRef<'_>) -> Counted {
        self.inner.config.names.counted(rule, key)
    }

    /// Hands settlements over, whether or not anybody waits for them.
    fn settle(&self, settlements: impl Iterator<Item = Settlement>) -> Vec<PendingReply<()>> {
        let hand_over = |settlement: Settlement| {
            self.inner.denied.forget(&settlement.counter);
            let settlement = Box::new(settlement);
            self.ask(self.settle_timeout(), |reply| Kind::Settle { settlement, reply: Some(reply) })
        };
        settlements.map(hand_over).collect()
    }

    fn ask<T>(
        &self,
        timeout: Duration,
        kind: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Kind,
    ) -> PendingReply<T> {
        let (ask, asking) = make(Instant::now() + timeout, kind);
        self.inner.connections.put(ask);
        asking
    }
}

impl Store for RedisStore {
    fn charge(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        let Inner { config, denied, connections } = &*self.inner;
        if let Some(answer) = self.answer_without_asking(charges) {
            return Answer::Now(answer);
        }
        let (question, other) = match denied.lookup(charges) {
            Lookup::Denied(denied) => {
                config.watch.denied_from_memory();
                return Answer::Now(Ok(denied));
            }
            Lookup::Ask => (None, None),
            Lookup::Lead(question) => (Some(question), None),
            Lookup::Follow(other) => (None, Some(other)),
        };
        let own = self.own(charges);
        if let Some(error) = connections.refuses(&own) {
            config.watch.refused();
            return Answer::Now(Err(error));
        }
        let (asked, deadline) = (config.watch.ask(), Instant::now() + config.timeout);
        if let Some(other) = other {
            let following = self.clone().follow(other, own, deadline);
            return Answer::later(async move { asked.answered(following.await) });
        }
        let deciding = connections.ask(own, deadline, false);
        Answer::later(async move {
            let answer = deciding.await;
            // Whoever waits for the answer finds it in memory.
            drop(question);
            asked.answered(answer)
        })
    }

    fn peek(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        if let Some(answer) = self.answer_without_asking(charges) {
            return Answer::Now(answer);
        }
        let deadline = Instant::now() + self.inner.config.timeout;
        Answer::later(self.inner.connections.ask(self.own(charges), deadline, true))
    }

    fn refund(&self, refunds: &[Refund<'_>]) -> Answer<()> {
        Answer::later(all(self.settle(refunds.iter().map(|refund| {
            let counter = self.counted(refund.rule, refund.key);
            Settlement { counter, what: What::Refund { cost: refund.cost, receipt: refund.receipt } }
        }))))
    }

    fn debit(&self, debits: &[Debit<'_>]) -> Answer<()> {
        // There is nothing to count under an invalid quota, nor for a cost of zero.
        let due = debits.iter().filter(|debit| debit.charge.cost > 0 && debit.charge.quota.max() > 0);
        Answer::later(all(self.settle(due.map(|Debit { charge, receipt, .. }| {
            let counter = self.counted(charge.rule, charge.key);
            let what = What::Debit { quota: *charge.quota, cost: charge.cost, receipt: *receipt };
            Settlement { counter, what }
        }))))
    }

    fn id(&self) -> Option<StoreId> {
        Some(StoreId::of(&self.inner))
    }

    fn reset(&self, rule: RuleName, key: KeyRef<'_>) -> Answer<()> {
        let counter = Box::new(self.counted(rule, key));
        self.inner.denied.forget(&counter);
        Answer::later(self.ask(self.settle_timeout(), |reply| Kind::Reset { counter, reply: Some(reply) }))
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.inner.config.prefix)
            .field("breaker", &self.breaker())
            .finish_non_exhaustive()
    }
}
