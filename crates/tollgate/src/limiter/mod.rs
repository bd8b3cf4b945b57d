//! Rules and a store: everything but HTTP.

mod charge;
mod plan;

use std::fmt;
use std::sync::Arc;

use tollgate_core::{Answer, Charge, Key, MemoryStore, Quota, Refund, Store};

pub use self::charge::ChargeBuilder;
pub(crate) use self::plan::{Plan, Planned, Planning};
use crate::error::{ConfigError, LimiterError};
use crate::failure::FailurePolicy;
use crate::rule::{Rule, RuleSet};

/// Rules, and a store that counts for them.
///
/// The [layer](crate::RateLimitLayer) is a thin skin over this, and whatever is not an HTTP request can be
/// limited without it: jobs, sockets, messages.
///
/// Clones are the same limiter.
///
/// ```
/// use tollgate::{Limiter, Quota, Rule};
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
pub struct Limiter<S = MemoryStore> {
    inner: Arc<Inner<S>>,
}

struct Inner<S> {
    rules: RuleSet,
    store: S,
}

impl Limiter {
    /// Starts making a limiter, with a store in memory unless another one is given.
    pub fn builder() -> LimiterBuilder {
        LimiterBuilder { rules: Vec::new(), store: StoreSource::New(MemoryStore::new) }
    }
}

impl<S: Store> Limiter<S> {
    /// Charges a key, and further ones if they are added, all or none.
    ///
    /// The key is counted by the rule of this name, whatever requests the rule matches and whatever key it
    /// takes from them.
    pub fn charge(&self, rule: impl Into<String>, key: impl Into<Key>) -> ChargeBuilder<S> {
        ChargeBuilder::new(self.clone(), rule.into(), key.into())
    }

    /// Gives back `cost` of what was last charged to a key.
    ///
    /// Giving back never lifts a budget above its quota. To a leaky bucket nothing is given back: the last
    /// place in its queue is somebody's who waits.
    ///
    /// # Errors
    ///
    /// When there is no such rule, or the store fails.
    pub async fn refund(&self, rule: &str, key: impl Into<Key>, cost: u32) -> Result<(), LimiterError> {
        let (rule, key) = (self.find(rule)?, key.into());
        let rule = self.rules().rule(rule).name;
        Ok(self.store().refund(&[Refund::new(rule, &key, cost)]).await?)
    }

    /// Forgets all that was charged to a key.
    ///
    /// # Errors
    ///
    /// When there is no such rule, or the store fails.
    pub async fn reset(&self, rule: &str, key: impl Into<Key>) -> Result<(), LimiterError> {
        let (rule, key) = (self.find(rule)?, key.into());
        Ok(self.store().reset(self.rules().rule(rule).name, (&key).into()).await?)
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &S {
        &self.inner.store
    }

    #[inline]
    pub(crate) fn rules(&self) -> &RuleSet {
        &self.inner.rules
    }

    fn find(&self, rule: &str) -> Result<usize, LimiterError> {
        self.rules().find(rule).ok_or_else(|| LimiterError::UnknownRule(rule.to_owned()))
    }

    /// Charges what was planned.
    #[inline(always)]
    pub(crate) fn decide(&self, plan: &Plan) -> Answer<S::Charging> {
        match plan.entries() {
            [only] => self.store().charge(&[self.charge_of(only)]),
            several => {
                let charges = several.iter().map(|planned| self.charge_of(planned));
                self.store().charge(&charges.collect::<smallvec::SmallVec<[Charge<'_>; 4]>>())
            }
        }
    }

    /// Whether a rule of the plan denies when the store cannot decide.
    pub(crate) fn denies_on_failure(&self, plan: &Plan) -> bool {
        let mut rules = plan.entries().iter().map(|planned| self.rules().rule(planned.rule));
        rules.any(|rule| rule.failure == FailurePolicy::Deny)
    }

    #[inline]
    pub(crate) fn charge_of<'a>(&'a self, planned: &'a Planned) -> Charge<'a> {
        let rule = self.rules().rule(planned.rule);
        Charge::new(rule.name, &planned.key, rule.quota(&planned.quota)).cost(planned.cost)
    }
}

impl<S> Clone for Limiter<S> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<S> fmt::Debug for Limiter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter").field("rules", &self.inner.rules).finish_non_exhaustive()
    }
}

/// One rule, named `default`: this quota for each peer address.
///
/// # Panics
///
/// When the quota makes no sense (see [`Quota::check`]).
impl From<Quota> for Limiter {
    fn from(quota: Quota) -> Self {
        match Self::builder().rule(Rule::new("default", quota)).build() {
            Ok(limiter) => limiter,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Makes a [`Limiter`].
#[derive(Clone, Debug)]
#[must_use]
pub struct LimiterBuilder<S = MemoryStore> {
    rules: Vec<Rule>,
    store: StoreSource<S>,
}

// A store is not made only to be replaced.
#[derive(Clone, Debug)]
enum StoreSource<S> {
    New(fn() -> S),
    Given(S),
}

impl<S: Store> LimiterBuilder<S> {
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

    /// Counts in this store.
    pub fn store<T: Store>(self, store: T) -> LimiterBuilder<T> {
        LimiterBuilder { rules: self.rules, store: StoreSource::Given(store) }
    }

    /// Makes the limiter.
    ///
    /// # Errors
    ///
    /// When a rule makes no sense, or two do not fit together. The error says which and why.
    pub fn build(self) -> Result<Limiter<S>, ConfigError> {
        let rules = RuleSet::new(self.rules)?;
        let store = match self.store {
            StoreSource::New(new) => new(),
            StoreSource::Given(store) => store,
        };
        Ok(Limiter { inner: Arc::new(Inner { rules, store }) })
    }
}
