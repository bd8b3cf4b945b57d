//! Making a limiter.

use std::fmt;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use ratekeeper_core::{MemoryStore, Store};

use super::{Backlog, Inner, Limiter, Waiters};
use crate::error::ConfigError;
use crate::observe::{LimiterWatch, StoreFigures};
use crate::rule::{Rule, RuleSet};

/// How many can wait by default.
const MAX_WAITING: usize = 10_000;

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
    pub(super) const fn new() -> Self {
        Self { rules: Vec::new(), version: None, store: None, max_local_keys: None, max_waiting: MAX_WAITING }
    }

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
    /// [`until_ready`](crate::ChargeBuilder::until_ready), for all keys together. A request over the bound is
    /// answered with 503, and what it was charged is given back; its place in a leaky bucket's queue only if
    /// nobody is behind it.
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
            rules: ArcSwap::new(rules.clone().into()),
            store,
            local: OnceLock::new(),
            max_local_keys: self.max_local_keys,
            backlog: Backlog::default(),
            waiters: Arc::new(Waiters::new(self.max_waiting)),
            watch: LimiterWatch::new(figures),
        };
        inner.make_local_store_for(&rules);
        let limiter = Limiter { inner: Arc::new(inner) };
        limiter.check_clashes();
        limiter.register();
        Ok(limiter)
    }
}

impl fmt::Debug for LimiterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimiterBuilder").field("rules", &self.rules).finish_non_exhaustive()
    }
}
