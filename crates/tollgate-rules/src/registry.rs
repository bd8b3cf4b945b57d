//! What the application made and a file can refer to by name.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tollgate::key::{self, Key, KeyExtractor};
use tollgate::{RequestHead, Rule, TierChoice};

type TierFuture = Pin<Box<dyn Future<Output = TierChoice> + Send>>;
type TierFn = Arc<dyn Fn(&RequestHead<'_>) -> TierChoice + Send + Sync>;
type AsyncTierFn = Arc<dyn Fn(&RequestHead<'_>) -> TierFuture + Send + Sync>;
pub(crate) type CostFn = Arc<dyn Fn(&RequestHead<'_>) -> u32 + Send + Sync>;

/// What the application made in code, by the names under which a file refers to it.
///
/// A file cannot hold a closure, but it can name one:
///
/// ```
/// use tollgate_rules::{Format, Registry, RuleFile};
/// # async fn plan_of(token: Option<http::HeaderValue>) -> Option<&'static str> { None }
///
/// #[derive(Clone)]
/// struct User { id: u64 }
///
/// let registry = Registry::new()
///     .extension("user", |user: &User| user.id)
///     .tier_async("plan", |head| {
///         let token = head.headers().get("authorization").cloned();
///         async move { plan_of(token).await }
///     })
///     .cost("by-method", |head| if head.method() == "GET" { 1 } else { 5 });
///
/// let text = r#"
///     [[rules]]
///     name = "api"
///     quota = "100/minute"
///     key = { registered = "user" }
///     tiers = { pro = "1000/minute" }
///     tier-by = "plan"
///     cost = { registered = "by-method" }
/// "#;
/// let file = RuleFile::parse("rules.toml", text, Format::Toml, &registry)?;
/// assert_eq!(file.rules().len(), 1);
/// # Ok::<(), tollgate_rules::RuleFileError>(())
/// ```
///
/// Keys, tiers and costs have names of their own each: a key and a cost can have the same. What is registered under a
/// name that was taken takes its place.
#[derive(Clone, Default)]
#[must_use]
pub struct Registry {
    keys: BTreeMap<String, Arc<dyn KeyExtractor>>,
    tiers: BTreeMap<String, TierLookup>,
    costs: BTreeMap<String, CostFn>,
}

/// How a caller's tier is found.
#[derive(Clone)]
pub(crate) enum TierLookup {
    Now(TierFn),
    Later(AsyncTierFn),
}

impl TierLookup {
    /// The rule, which finds tiers by this.
    pub(crate) fn add_to(self, rule: Rule) -> Rule {
        match self {
            Self::Now(lookup) => rule.tier_by(move |head| lookup(head)),
            Self::Later(lookup) => rule.tier_by_async(move |head| lookup(head)),
        }
    }
}

impl Registry {
    /// One that has nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// A key: `key = { registered = "…" }`.
    pub fn key(mut self, name: impl Into<String>, key: impl KeyExtractor) -> Self {
        self.keys.insert(name.into(), Arc::new(key));
        self
    }

    /// A key that is taken from what an outer layer put into the request's extensions. See
    /// [`key::extension`](tollgate::key::extension).
    pub fn extension<T, K>(self, name: impl Into<String>, f: impl Fn(&T) -> K + Send + Sync + 'static) -> Self
    where
        T: Send + Sync + 'static,
        K: Into<Key>,
    {
        self.key(name, key::extension(f))
    }

    /// A lookup of tiers: `tier-by = "…"`. See [`Rule::tier_by`].
    pub fn tier<T, F>(mut self, name: impl Into<String>, lookup: F) -> Self
    where
        T: Into<TierChoice>,
        F: Fn(&RequestHead<'_>) -> T + Send + Sync + 'static,
    {
        self.tiers.insert(name.into(), TierLookup::Now(Arc::new(move |head| lookup(head).into())));
        self
    }

    /// A lookup of tiers that asks somebody else. See [`Rule::tier_by_async`].
    pub fn tier_async<T, U, F>(mut self, name: impl Into<String>, lookup: F) -> Self
    where
        T: Into<TierChoice>,
        U: Future<Output = T> + Send + 'static,
        F: Fn(&RequestHead<'_>) -> U + Send + Sync + 'static,
    {
        let lookup: AsyncTierFn = Arc::new(move |head| {
            let tier = lookup(head);
            Box::pin(async move { tier.await.into() })
        });
        self.tiers.insert(name.into(), TierLookup::Later(lookup));
        self
    }

    /// A cost that depends on the request: `cost = { registered = "…" }`. See [`Rule::cost_by`].
    pub fn cost(
        mut self,
        name: impl Into<String>,
        cost: impl Fn(&RequestHead<'_>) -> u32 + Send + Sync + 'static,
    ) -> Self {
        self.costs.insert(name.into(), Arc::new(cost));
        self
    }

    pub(crate) fn find_key(&self, name: &str) -> Option<Arc<dyn KeyExtractor>> {
        self.keys.get(name).cloned()
    }

    pub(crate) fn find_tier_lookup(&self, name: &str) -> Option<TierLookup> {
        self.tiers.get(name).cloned()
    }

    pub(crate) fn find_cost(&self, name: &str) -> Option<CostFn> {
        self.costs.get(name).cloned()
    }

    pub(crate) fn key_names(&self) -> Vec<&str> {
        self.keys.keys().map(String::as_str).collect()
    }

    pub(crate) fn tier_names(&self) -> Vec<&str> {
        self.tiers.keys().map(String::as_str).collect()
    }

    pub(crate) fn cost_names(&self) -> Vec<&str> {
        self.costs.keys().map(String::as_str).collect()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("keys", &self.keys.keys())
            .field("tiers", &self.tiers.keys())
            .field("costs", &self.costs.keys())
            .finish()
    }
}
