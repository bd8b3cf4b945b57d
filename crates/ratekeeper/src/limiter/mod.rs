//! Rules and a store: everything but HTTP.

mod charge;
mod fallback;
mod in_force;
mod plan;
mod shadow;

use std::fmt;
use std::sync::{Arc, OnceLock};

use ratekeeper_core::{Answer, Decision, Key, MemoryStore, Quota, Refund, RuleName, Store};
use smallvec::SmallVec;

pub use self::charge::ChargeBuilder;
pub(crate) use self::fallback::Fallback;
use self::in_force::{Current, InForce};
pub(crate) use self::plan::{Plan, Planned, Planner, Planning, Refused};
pub(crate) use self::shadow::{ShadowReport, Shadowing};
use crate::error::{ConfigError, LimiterError};
use crate::hold::Room;
use crate::observe::{HasRules, LimiterWatch, StoreFigures};
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
    rules: InForce,
    store: Arc<dyn Store>,
    /// Decides when the store fails, for the rules that want it. Created once there are such rules.
    local: OnceLock<MemoryStore>,
    max_local_keys: Option<usize>,
    room: Arc<Room>,
    watch: LimiterWatch,
}

/// How many can wait by default.
const MAX_WAITING: usize = 10_000;

impl Limiter {
    /// Returns a builder, which uses an in-memory store unless given another one.
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder {
            rules: Vec::new(),
            version: None,
            store: None,
            max_local_keys: None,
            max_waiting: MAX_WAITING,
        }
    }
}

impl Limiter {
    /// Charges a key, and further ones if they are added: all or none.
    ///
    /// The key is counted under the rule of this name, whatever requests the rule matches and whatever key it
    /// takes from them. To charge an address, make its key with [`PeerIp::key`](crate::key::PeerIp::key),
    /// because the layer counts IPv6 by network.
    pub fn charge(&self, rule: impl Into<String>, key: impl Into<Key>) -> ChargeBuilder {
        ChargeBuilder::new(self.clone(), rule.into(), key.into())
    }

    /// Gives back `cost` of what was last charged to a key, also under a [candidate](Rule::candidate).
    ///
    /// A refund never lifts a budget above its quota. Nothing is given back to a leaky bucket, because the
    /// last place in its queue belongs to a request that waits. What was charged
    /// [locally](crate::FailurePolicy::Local) is not given back either.
    ///
    /// Requests that [wait](Rule::hold_up_to) for this budget in this process are served from what comes
    /// back.
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
        self.store().refund(&refunds).await?;
        self.came_back(rule, key);
        Ok(())
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
        self.store().reset(rule, (&key).into()).await?;
        self.came_back(rule, key);
        Ok(())
    }

    /// Some of a key's budget has come back: the request that waits for it may ask again.
    pub(crate) fn came_back(&self, rule: RuleName, key: Key) {
        self.room().call(&(rule, key));
    }

    /// Releases everything that waits, for when the server shuts down. From then on nothing waits.
    ///
    /// A request that was waiting for its budget is denied, as it would have been without waiting. If it
    /// stood behind others and the store has not been asked about it, it is answered with 503 instead. A
    /// request that a leaky bucket was holding back is answered with 503, and what it was charged is given
    /// back; its place in the queue is given back only if the spacing still holds.
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
        self.room().close();
    }

    /// How many wait: held back by the layer, or through [`until_ready`](ChargeBuilder::until_ready) and
    /// `ready_within`.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.room().waiting()
    }

    /// Puts another set of rules in force, and returns the previous one.
    ///
    /// Each request is decided from beginning to end by one set, the one that was in force when it arrived,
    /// and no request waits for the swap. Counters are kept: what a caller has used under a rule stays used
    /// under the new rule of the same name, whatever its quota is now.
    ///
    /// The first set of a limiter stays in memory for as long as the limiter does, with whatever its closures
    /// hold, so none of them should hold the limiter itself. See [`RuleSet`] for an example.
    pub fn swap(&self, rules: RuleSet) -> RuleSet {
        self.inner.make_local_store_for(&rules);
        rules.rules().watch.put_in_force();
        let before = self.inner.rules.swap(rules.into()).into();
        self.look_for_clashes();
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

    pub(crate) fn room(&self) -> &Arc<Room> {
        &self.inner.room
    }

    /// What all clones share.
    pub(crate) fn shared(&self) -> Arc<dyn HasRules> {
        Arc::<Inner>::clone(&self.inner)
    }

    /// Distinguishes this limiter from all others.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.inner).addr()
    }

    #[inline(always)]
    pub(crate) fn watch(&self) -> &LimiterWatch {
        &self.inner.watch
    }

    /// The rules in force. Two calls may return two sets, so each request calls this once.
    #[inline(always)]
    pub(crate) fn rules(&self) -> Current<'_> {
        self.inner.rules.load()
    }

    /// The names under which a rule counts: its own, and that of its candidate.
    fn names_of(&self, rule: &str) -> Result<(RuleName, Option<RuleName>), LimiterError> {
        let rules = self.rules();
        let rule = rules.rule(rules.find_or(rule)?);
        Ok((rule.name, rule.candidate_name()))
    }

    /// Charges what was planned.
    #[inline(always)]
    pub(crate) fn decide(&self, plan: &Plan) -> Answer<Decision> {
        match plan.entries() {
            [only] => self.store().charge(&[plan.rules().charge_of(only)]),
            _ => self.store().charge(&plan.charges()),
        }
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

impl HasRules for Inner {
    fn rules_in_force(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.load())
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").field("rules", &**self.inner.rules.load()).finish_non_exhaustive()
    }
}

/// One rule, named `default`: this quota for each peer address.
///
/// # Panics
///
/// If the quota is invalid (see [`Quota::check`]).
impl From<Quota> for Limiter {
    fn from(quota: Quota) -> Self {
        match Self::builder().rule(Rule::new("default", quota)).build() {
            Ok(limiter) => limiter,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Makes a [`Limiter`].
#[derive(Clone)]
#[must_use]
pub struct LimiterBuilder {
    rules: Vec<Rule>,
    version: Option<String>,
    /// `None` means a new in-memory store.
    store: Option<(Arc<dyn Store>, StoreFigures)>,
    max_local_keys: Option<usize>,
    max_waiting: usize,
}

impl LimiterBuilder {
    /// Adds a rule.
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Adds rules.
    pub fn rules(mut self, rules: impl IntoIterator<Item = Rule>) -> Self {
        self.rules.extend(rules);
        self
    }

    /// Sets the version of the rules, which distinguishes them from sets that [may follow](Limiter::swap).
    /// See [`RuleSet::version`].
    pub fn version(self, version: impl Into<String>) -> Self {
        Self { version: Some(version.into()), ..self }
    }

    /// Uses this store. By default it is a new [`MemoryStore`].
    ///
    /// The store can be chosen at run time:
    ///
    /// ```
    /// use ratekeeper::{Limiter, ManualClock, MemoryStore, Quota, Rule, Timestamp};
    ///
    /// # fn main() -> Result<(), ratekeeper::ConfigError> {
    /// # let under_test = true;
    /// let builder = Limiter::builder().rule(Rule::new("api", Quota::per_second(10)));
    /// let builder = match under_test {
    ///     true => builder.store(MemoryStore::builder().clock(ManualClock::new(Timestamp::UNIX_EPOCH)).build()),
    ///     false => builder.store(MemoryStore::new()),
    /// };
    /// let limiter: Limiter = builder.build()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn store(self, store: impl Store) -> Self {
        let figures = StoreFigures::of(&store);
        Self { store: Some((Arc::new(store), figures)), ..self }
    }

    /// How many keys this process counts at most when the store fails, for rules that [want
    /// it](crate::FailurePolicy::Local). A million by default.
    ///
    /// Without such rules there is nothing to bound.
    pub fn max_local_keys(self, max_keys: usize) -> Self {
        Self { max_local_keys: Some(max_keys), ..self }
    }

    /// How many can wait at the same time at most. Ten thousand by default.
    ///
    /// This counts what the layer holds back and what waits through
    /// [`until_ready`](ChargeBuilder::until_ready). Beyond the bound nothing waits: a denied request is
    /// denied immediately. A request that a leaky bucket would hold back, or that would go to the end of a
    /// line, is answered with 503. (Its place in the leaky bucket's queue is given back, unless another
    /// request has got in line behind it meanwhile.) All keys share this bound, so a key with a long line
    /// takes room from the others.
    pub fn max_waiting(self, max_waiting: usize) -> Self {
        Self { max_waiting, ..self }
    }

    /// Makes the limiter.
    ///
    /// # Errors
    ///
    /// If a rule is invalid, or two rules do not fit together. The error says which and why.
    pub fn build(self) -> Result<Limiter, ConfigError> {
        let rules = RuleSet::new(self.rules)?;
        let rules = match self.version {
            Some(version) => rules.with_version(version),
            None => rules,
        };
        let (store, figures) = self.store.unwrap_or_else(|| {
            let store = MemoryStore::new();
            let figures = StoreFigures::of(&store);
            (Arc::new(store), figures)
        });
        let inner = Inner {
            rules: InForce::new(rules.clone().into()),
            store,
            local: OnceLock::new(),
            max_local_keys: self.max_local_keys,
            room: Arc::new(Room::new(self.max_waiting)),
            watch: LimiterWatch::new(figures),
        };
        inner.make_local_store_for(&rules);
        let limiter = Limiter { inner: Arc::new(inner) };
        limiter.look_for_clashes();
        limiter.enlist();
        Ok(limiter)
    }
}

impl fmt::Debug for LimiterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimiterBuilder").field("rules", &self.rules).finish_non_exhaustive()
    }
}
