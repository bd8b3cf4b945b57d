//! The store.

mod builder;
mod servers;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ratekeeper_core::{
    Answer, Charge, Debit, Decision, KeyRef, Refund, RuleName, Store, StoreError, StoreId,
};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

pub use self::builder::RedisStoreBuilder;
pub use self::servers::{IntoClient, Servers};
use crate::batch::settlement::{Settlement, What};
use crate::cluster::Router;
use crate::cluster::multi_slot::{self, MultiSlot};
use crate::cluster::{Deciding, PendingReply, all, make};
use crate::config::Config;
use crate::connection::Connection;
use crate::connection::{Breaker, BreakerState};
use crate::denial_cache::{DenialCache, Knowledge};
use crate::error::{SetupError, unavailable};
use crate::name::Counted;
use crate::observe::Asked;
use crate::request::{Ask, Charges, Kind, OwnCharge, UNHURRIED};

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
    links: Links,
}

/// The connections to the servers that have the counters.
#[derive(Clone, Debug)]
pub(crate) enum Links {
    /// One server has all of them.
    One(Connection),
    /// They are spread over a cluster.
    Cluster(Arc<Router>),
}

impl Links {
    /// Puts something in line. It always gets an answer.
    pub(crate) fn put(&self, ask: Ask) {
        match self {
            Self::One(link) => link.put(ask),
            Self::Cluster(router) => router.put(ask),
        }
    }

    fn breaker(&self) -> &Breaker {
        match self {
            Self::One(link) => link.breaker(),
            Self::Cluster(router) => router.breaker(),
        }
    }

    /// The error to answer with instead of asking.
    fn refuses(&self, charges: &Charges) -> Option<StoreError> {
        match self {
            Self::One(link) => link.refuses(),
            // A denial by one node is a denial, so it refuses only if all nodes do.
            Self::Cluster(router) => {
                let mut refused = charges.iter().map(|charge| router.refuses(charge.counter.slot));
                refused.try_fold(None, |_, error| error.map(Some)).flatten()
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        match &self.links {
            Links::One(link) => link.close(),
            Links::Cluster(router) => router.close(),
        }
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

    pub(crate) fn start(links: Links, config: Config, denied: Arc<DenialCache>) -> Self {
        Self { inner: Arc::new(Inner { config, denied, links }) }
    }

    /// Whether Redis is asked, or known not to work. On a cluster, the breaker is open while any node with
    /// slots fails; keys on the other nodes are still decided.
    #[must_use]
    pub fn breaker(&self) -> BreakerState {
        self.inner.links.breaker().watch().borrow().clone()
    }

    /// Watches changes of the [breaker](Self::breaker).
    #[must_use]
    pub fn watch_breaker(&self) -> watch::Receiver<BreakerState> {
        self.inner.links.breaker().watch()
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

    fn own(&self, charges: &[Charge<'_>]) -> Charges {
        charges.iter().map(|charge| OwnCharge::new(charge, &self.inner.config.names)).collect()
    }

    /// Asks about a request, with one question for all charges that may be asked together.
    fn ask_for(&self, charges: Charges, peek: bool) -> Deciding {
        let (links, deadline) = (&self.inner.links, Instant::now() + self.inner.config.timeout);
        let one = |charges: Charges| {
            let (ask, asking) = make(deadline, |reply| Kind::about(charges, peek, None, reply));
            links.put(ask);
            Deciding::alone(asking, links.clone())
        };
        if charges.len() == 1 || matches!(links, Links::One(_)) {
            return one(charges);
        }
        let (mut groups, order) = multi_slot::by(charges, |charge| charge.counter.slot);
        if groups.len() == 1 {
            return one(groups.swap_remove(0));
        }
        Deciding::MultiSlot(Box::new(MultiSlot::ask(groups, order, links.clone(), deadline, peek)))
    }

    /// How long an operation may take that no incoming request waits for.
    fn unhurried(&self) -> Duration {
        self.inner.config.timeout.max(UNHURRIED)
    }

    fn counted(&self, rule: RuleName, key: KeyRef<'_>) -> Counted {
        self.inner.config.names.counted(rule, key)
    }

    /// Hands settlements over, whether or not anybody waits for them.
    fn settle(&self, settlements: impl Iterator<Item = Settlement>) -> Vec<PendingReply<()>> {
        let hand_over = |settlement: Settlement| {
            self.inner.denied.forget(&settlement.counter);
            let settlement = Box::new(settlement);
            self.ask(self.unhurried(), |reply| Kind::Settle { settlement, reply: Some(reply) })
        };
        settlements.map(hand_over).collect()
    }

    fn ask<T>(
        &self,
        timeout: Duration,
        kind: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Kind,
    ) -> PendingReply<T> {
        let (ask, asking) = make(Instant::now() + timeout, kind);
        self.inner.links.put(ask);
        asking
    }
}

fn too_many_charges() -> StoreError {
    unavailable("a request with more than 10,000 charges is more than Redis is asked about at once")
}

impl Store for RedisStore {
    fn charge(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        let mut denial = None;
        match charges {
            [] => return Answer::Now(Ok(Decision::new(self.inner.denied.now()))),
            too_many if too_many.len() > MOST_CHARGES => return Answer::Now(Err(too_many_charges())),
            // Usually there is one charge. A decision is large, so it is made only for a denial, and in
            // place.
            [charge] => {
                if let Some((now, outcome)) = self.inner.denied.find_one(charge) {
                    self.inner.config.watch.denied_from_memory();
                    let mut decision = Decision::new(now);
                    decision.push(charge.rule, outcome);
                    return Answer::Now(Ok(decision));
                }
            }
            several => match self.inner.denied.find(several) {
                Some((known, Knowledge::Enough)) => {
                    self.inner.config.watch.denied_from_memory();
                    return Answer::Now(Ok(known));
                }
                known => denial = known,
            },
        }
        let charges = self.own(charges);
        if let Some(error) = self.inner.links.refuses(&charges) {
            // More than is known cannot be found out now.
            if let Some((known, _)) = denial {
                self.inner.config.watch.denied_from_memory();
                return Answer::Now(Ok(known));
            }
            self.inner.config.watch.refused();
            return Answer::Now(Err(error));
        }
        let asked = self.inner.config.watch.ask();
        Answer::later(Charging { deciding: self.ask_for(charges, false), asked })
    }

    fn peek(&self, charges: &[Charge<'_>]) -> Answer<Decision> {
        match charges {
            // Nothing to look at.
            [] => Answer::Now(Ok(Decision::new(self.inner.denied.now()))),
            too_many if too_many.len() > MOST_CHARGES => Answer::Now(Err(too_many_charges())),
            charges => Answer::later(self.ask_for(self.own(charges), true)),
        }
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
        Answer::later(self.ask(self.unhurried(), |reply| Kind::Reset { counter, reply: Some(reply) }))
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

/// A charge that is under way.
///
/// If this is dropped before the answer arrives, the charge is given back if it was made. The exception is
/// when the last clone of the store was dropped before that, and the answer has arrived since.
#[derive(Debug)]
struct Charging {
    deciding: Deciding,
    asked: Asked,
}

impl Future for Charging {
    type Output = Result<Decision, StoreError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = std::task::ready!(Pin::new(&mut self.deciding).poll(cx));
        self.asked.answered(&answer);
        Poll::Ready(answer)
    }
}
