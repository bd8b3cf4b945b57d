//! The store.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tollgate_core::{Answer, Charge, Decision, KeyRef, Refund, RuleName, Store, StoreError};

use crate::breaker::BreakerState;
use crate::builder::RedisStoreBuilder;
use crate::config::Config;
use crate::denied::Denied;
use crate::error::SetupError;
use crate::link::{Link, unavailable};
use crate::name::Names;
use crate::request::{Ask, Charges, Counted, Kind, OwnCharge, UNHURRIED};
use crate::servers::{IntoClient, Servers};

/// A store in Redis or Valkey: one budget for all processes that use the same servers and the same prefix.
///
/// Clones are the same store. See the [crate](crate) for what it promises.
#[derive(Clone)]
pub struct RedisStore {
    inner: Arc<Inner>,
}

struct Inner {
    names: Names,
    config: Config,
    denied: Arc<Denied>,
    link: Link,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.link.close();
    }
}

impl RedisStore {
    /// A store on one server, with everything at its default.
    ///
    /// This does not wait for a connection, which is made in the background: until there is one, every decision fails,
    /// and the failure policy of each rule applies. [`ready`](Self::ready) waits.
    ///
    /// # Errors
    ///
    /// When the address makes no sense, or there is no tokio runtime.
    pub fn new(address: impl IntoClient) -> Result<Self, SetupError> {
        Self::builder(Servers::one(address)?).build()
    }

    /// Starts making a store.
    #[must_use]
    pub fn builder(servers: Servers) -> RedisStoreBuilder {
        RedisStoreBuilder::new(servers)
    }

    pub(crate) fn start(link: Link, config: Config, denied: Arc<Denied>) -> Self {
        let names = Names::new(&config.prefix);
        Self { inner: Arc::new(Inner { names, config, denied, link }) }
    }

    /// Whether Redis is asked, or known not to work.
    #[must_use]
    pub fn breaker(&self) -> BreakerState {
        self.inner.link.breaker().watch().borrow().clone()
    }

    /// Tells each change of the [breaker](Self::breaker).
    #[must_use]
    pub fn watch_breaker(&self) -> watch::Receiver<BreakerState> {
        self.inner.link.breaker().watch()
    }

    /// Waits until Redis works.
    ///
    /// # Errors
    ///
    /// When it does not within `patience`; the error says what was wrong last.
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
        charges.iter().map(|charge| OwnCharge::new(charge, &self.inner.names)).collect()
    }

    fn ask<T>(
        &self,
        timeout: Duration,
        kind: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Kind,
    ) -> Asking<T> {
        let (reply, answer) = oneshot::channel();
        self.inner.link.put(Ask::new(kind(reply), timeout));
        Asking(answer)
    }
}

impl Store for RedisStore {
    type Charging = Charging;

    fn charge(&self, charges: &[Charge<'_>]) -> Answer<Charging> {
        if let Some(denial) = self.inner.denied.find(charges) {
            return Answer::Now(Ok(denial));
        }
        if let Some(error) = self.inner.link.refuses() {
            return Answer::Now(Err(error));
        }
        if charges.is_empty() {
            return Answer::Now(Ok(Decision::new(self.inner.denied.now())));
        }
        let charges = self.own(charges);
        let asking =
            self.ask(self.inner.config.timeout, |reply| Kind::Charge { charges, reply: Some(reply) });
        Answer::Later(Charging(asking))
    }

    fn peek(&self, charges: &[Charge<'_>]) -> impl Future<Output = Result<Decision, StoreError>> + Send {
        // Nothing to look at takes no time.
        let now = charges.is_empty().then(|| self.inner.denied.now());
        let charges = self.own(charges);
        let asking = now
            .is_none()
            .then(|| self.ask(self.inner.config.timeout, |reply| Kind::Peek { charges, reply: Some(reply) }));
        async move {
            match (asking, now) {
                (Some(asking), _) => asking.await,
                (None, now) => Ok(Decision::new(now.unwrap_or_default())),
            }
        }
    }

    fn refund(&self, refunds: &[Refund<'_>]) -> impl Future<Output = Result<(), StoreError>> + Send {
        // Handed over now, whether or not anybody waits for it.
        let asked: Vec<_> = refunds
            .iter()
            .map(|refund| {
                let counter = Counted::new(refund.rule, refund.key, &self.inner.names);
                self.inner.denied.forget(counter.rule, counter.key);
                let (cost, receipt) = (refund.cost, refund.receipt);
                self.ask(UNHURRIED, |reply| Kind::Refund { counter, cost, receipt, reply: Some(reply) })
            })
            .collect();
        async move {
            for refunded in asked {
                refunded.await?;
            }
            Ok(())
        }
    }

    fn reset(&self, rule: RuleName, key: KeyRef<'_>) -> impl Future<Output = Result<(), StoreError>> + Send {
        let counter = Counted::new(rule, key, &self.inner.names);
        self.inner.denied.forget(counter.rule, counter.key);
        self.ask(UNHURRIED, |reply| Kind::Reset { counter, reply: Some(reply) })
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

/// An answer that is under way.
#[derive(Debug)]
struct Asking<T>(oneshot::Receiver<Result<T, StoreError>>);

impl<T> Future for Asking<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(cx)
            .map(|answer| answer.unwrap_or_else(|_| Err(unavailable("the store has ended"))))
    }
}

/// A charge that is under way.
///
/// Dropped before the answer has come, the charge is given back if it was made.
#[derive(Debug)]
#[must_use = "the charge is under way, whether or not the answer is looked at"]
pub struct Charging(Asking<Decision>);

impl Future for Charging {
    type Output = Result<Decision, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}
