//! Rules and a store: the pipeline of a request, without HTTP.
//!
//! | step | module |
//! |---|---|
//! | match, and plan the charges | `plan` |
//! | decide | `decide`, `fallback` and `backlog` if the store fails |
//! | observe | `observe`, `check` |
//! | wait | `wait` |
//! | charge rules in shadow | `shadow` |
//! | settle | `settle` |

mod backlog;
mod builder;
mod charge;
mod check;
mod decide;
mod fallback;
mod observe;
mod plan;
pub(crate) mod settle;
mod shadow;
mod wait;

use std::fmt;
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, Guard};
use ratekeeper_core::{Key, MemoryStore, Quota, Refund, RuleName, Store};
use smallvec::SmallVec;

use self::backlog::Backlog;
pub use self::builder::LimiterBuilder;
pub use self::charge::{ChargeBuilder, ChargeFuture};
pub(crate) use self::decide::Verdict;
use self::fallback::Fallback;
pub(crate) use self::observe::How;
pub(crate) use self::plan::{Patience, Plan, Planned, Planning};
pub(crate) use self::shadow::ShadowReport;
pub(crate) use self::wait::Delay;
use self::wait::Waiters;
use crate::error::{ConfigError, LimiterError};
use crate::observe::LimiterWatch;
use crate::request::RequestHead;
use crate::rule::{Rule, RuleSet, Rules};

/// Rules, and a store that counts for them.
///
/// The [layer](crate::RateLimitLayer) is a thin wrapper around this. Whatever is not an HTTP request can be
/// limited without the layer: jobs, sockets, messages.
///
/// Clones are the same limiter.
///
/// ```
/// use ratekeeper::{Limiter, Quota, Rule};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder()
///     .rule(Rule::new("messages", Quota::per_second(5)))
///     .rule(Rule::new("bytes", Quota::per_minute(10_000)))
///     .build()?;
///
/// let decision = limiter.charge("messages", "alice").and("bytes", "alice").cost(120).await?;
/// assert!(decision.is_admitted());
/// assert_eq!(decision.outcome("bytes").unwrap().remaining(), 9_880);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Limiter {
    inner: Arc<Inner>,
}

struct Inner {
    /// The rules in force.
    rules: ArcSwap<Rules>,
    store: Arc<dyn Store>,
    /// Decides when the store fails, for the rules that want it. Created once there are such rules.
    local: OnceLock<MemoryStore>,
    max_local_keys: Option<usize>,
    /// What was decided there, and the store does not know of.
    backlog: Backlog,
    waiters: Arc<Waiters>,
    watch: LimiterWatch,
}

impl Limiter {
    /// Returns a builder, which uses an in-memory store unless given another one.
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder::new()
    }

    /// Charges a key, and further ones if they are added: all or none.
    ///
    /// The key is counted under the rule of this name, whatever requests the rule matches and whatever key it
    /// takes from them. To charge an address, make its key with [`PeerIp::key`](crate::key::PeerIp::key),
    /// because the layer counts IPv6 by network.
    pub fn charge(&self, rule: impl Into<String>, key: impl Into<Key>) -> ChargeBuilder {
        ChargeBuilder::new(self.clone(), rule.into(), key.into())
    }

    /// The key that a rule takes from a request, for [`charge`](Self::charge), [`refund`](Self::refund) and
    /// [`reset`](Self::reset). `None` if the request does not have it.
    ///
    /// ```
    /// use http::Request;
    /// use ratekeeper::{Limiter, Quota, RequestHead, Rule, key};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let login = Rule::new("login", Quota::per_hour(5)).key(key::header("x-user"));
    /// let limiter = Limiter::builder().rule(login).build()?;
    /// # let request = Request::post("/login").header("x-user", "alice").body(())?;
    /// // The user has proved who they are: forget the failed attempts.
    /// if let Some(key) = limiter.key_of("login", &RequestHead::from(&request)).await? {
    ///     limiter.reset("login", key).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no such rule.
    pub async fn key_of(&self, rule: &str, head: &RequestHead<'_>) -> Result<Option<Key>, LimiterError> {
        let extracted = {
            let rules = self.rules();
            let wanted = rules.find_or(rule)?;
            let source = &rules.rule(wanted).key;
            let mut extracted = None;
            // A path parameter is one of the pattern by which the rule matches.
            rules.for_each_match(head, |number, head| {
                if number == wanted {
                    extracted = Some(source.extract(head.extensions(), || *head));
                }
            });
            extracted.unwrap_or_else(|| source.extract(head.extensions(), || *head))
        };
        Ok(extracted.wait().await)
    }

    /// Gives back `cost` of what was last charged to a key, also under a [candidate](Rule::candidate).
    ///
    /// A refund never lifts a budget above its quota. Nothing is given back to a leaky bucket, because the
    /// last place in its queue belongs to a request that waits. What was charged
    /// [locally](crate::FailurePolicy::Local) is not given back either.
    ///
    /// # Errors
    ///
    /// If there is no such rule, or the store fails. A store that fails may still make the refund later, as
    /// the Redis store does, so do not request it a second time.
    pub async fn refund(&self, rule: &str, key: impl Into<Key>, cost: u32) -> Result<(), LimiterError> {
        let key = key.into();
        let (rule, candidate) = self.names_of(rule)?;
        let names = std::iter::once(rule).chain(candidate);
        let refunds: SmallVec<[_; 2]> = names.map(|rule| Refund::new(rule, &key, cost)).collect();
        Ok(self.store().refund(&refunds).await?)
    }

    /// Forgets everything charged to a key, also under a [candidate](Rule::candidate).
    ///
    /// This applies to the store and to what was charged [locally](crate::FailurePolicy::Local).
    ///
    /// # Errors
    ///
    /// If there is no such rule, or the store fails.
    pub async fn reset(&self, rule: &str, key: impl Into<Key>) -> Result<(), LimiterError> {
        let key = key.into();
        let (rule, candidate) = self.names_of(rule)?;
        if let Some(local) = self.local_store() {
            local.reset(rule, (&key).into()).await?;
        }
        if let Some(candidate) = candidate {
            self.store().reset(candidate, (&key).into()).await?;
        }
        Ok(self.store().reset(rule, (&key).into()).await?)
    }

    /// Releases everything that waits, for when the server shuts down. From then on nothing waits.
    ///
    /// A request that was being held back is answered with 503, and what it was charged is given back; its
    /// place in a leaky bucket's queue only if nobody is behind it.
    ///
    /// Requests that need not wait are decided as usual, so requests that still arrive are served.
    ///
    /// ```no_run
    /// # async fn serve(
    /// #     listener: tokio::net::TcpListener,
    /// #     app: axum::Router,
    /// #     limiter: ratekeeper::Limiter,
    /// #     stop: impl Future<Output = ()> + Send + 'static,
    /// # ) -> std::io::Result<()> {
    /// axum::serve(listener, app)
    ///     .with_graceful_shutdown(async move {
    ///         stop.await;
    ///         limiter.close();
    ///     })
    ///     .await
    /// # }
    /// ```
    pub fn close(&self) {
        self.waiters().close();
    }

    /// How many wait: held back by the layer, or through [`until_ready`](ChargeBuilder::until_ready) and
    /// `ready_within`.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiters().count()
    }

    /// Puts another set of rules in force, and returns the previous one.
    ///
    /// Each request is decided from beginning to end by one set, the one that was in force when it arrived,
    /// and no request waits for the swap. Counters are kept: what a caller has used under a rule stays used
    /// under the new rule of the same name, whatever its quota is now.
    ///
    /// See [`RuleSet`] for an example.
    pub fn swap(&self, rules: RuleSet) -> RuleSet {
        self.inner.make_local_store_for(&rules);
        rules.rules().watch.put_in_force();
        let before = self.inner.rules.swap(rules.into()).into();
        self.check_clashes();
        before
    }

    /// The rules in force.
    #[must_use]
    pub fn rule_set(&self) -> RuleSet {
        Arc::clone(&self.rules()).into()
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    /// The in-process store that decides when the other store fails, for rules that want it
    /// ([`FailurePolicy::Local`](crate::FailurePolicy::Local)). `None` if no rule ever did.
    #[must_use]
    pub fn local_store(&self) -> Option<&MemoryStore> {
        self.inner.local.get()
    }

    fn waiters(&self) -> &Arc<Waiters> {
        &self.inner.waiters
    }

    fn backlog(&self) -> &Backlog {
        &self.inner.backlog
    }

    /// Distinguishes this limiter from all others.
    fn address(&self) -> usize {
        Arc::as_ptr(&self.inner).addr()
    }

    pub(crate) fn watch(&self) -> &LimiterWatch {
        &self.inner.watch
    }

    /// The rules in force. Two calls may return two sets, so each request calls this once.
    pub(crate) fn rules(&self) -> Guard<Arc<Rules>> {
        self.inner.rules.load()
    }

    /// The names under which a rule counts: its own, and that of its candidate.
    fn names_of(&self, rule: &str) -> Result<(RuleName, Option<RuleName>), LimiterError> {
        let rules = self.rules();
        let rule = rules.rule(rules.find_or(rule)?);
        Ok((rule.name, rule.candidate_name()))
    }
}

impl Inner {
    /// Makes the in-process store, if these rules want it and there is none yet.
    fn make_local_store_for(&self, rules: &RuleSet) {
        if rules.rules().decides_locally() {
            self.local.get_or_init(|| {
                let builder = MemoryStore::builder();
                match self.max_local_keys {
                    Some(max_keys) => builder.max_keys(max_keys).build(),
                    None => builder.build(),
                }
            });
        }
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").field("rules", &**self.inner.rules.load()).finish_non_exhaustive()
    }
}

impl Limiter {
    /// One rule: this quota for each peer address.
    pub(crate) fn per_peer(rule: impl Into<String>, quota: Quota) -> Result<Self, ConfigError> {
        Self::builder().rule(Rule::new(rule, quota)).build()
    }
}

/// One rule, named `default`: this quota for each peer address.
///
/// # Panics
///
/// If the quota is invalid (see [`Quota::check`]).
impl From<Quota> for Limiter {
    #[track_caller]
    fn from(quota: Quota) -> Self {
        match Self::per_peer("default", quota) {
            Ok(limiter) => limiter,
            Err(error) => panic!("{error}"),
        }
    }
}
