//! What the application made in code and a file can refer to by name.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use ratekeeper::key::{self, Key, KeyExtractor};
use ratekeeper::{RequestHead, ResponseHead, Rule, Settle, TierChoice};

use crate::size::MAX_SIZE;

type TierFuture = Pin<Box<dyn Future<Output = TierChoice> + Send>>;
type TierFn = Arc<dyn Fn(&RequestHead<'_>) -> TierChoice + Send + Sync>;
type AsyncTierFn = Arc<dyn Fn(&RequestHead<'_>) -> TierFuture + Send + Sync>;
pub(crate) type CostFn = Arc<dyn Fn(&RequestHead<'_>) -> u32 + Send + Sync>;
pub(crate) type PredicateFn = Arc<dyn Fn(&RequestHead<'_>) -> bool + Send + Sync>;
pub(crate) type SettleFn = Arc<dyn Fn(&ResponseHead<'_>) -> Settle + Send + Sync>;

/// What the application made in code, under the names by which a file refers to it, and how large a document
/// may be.
///
/// A file cannot hold a closure, but it can name one:
///
/// ```
/// use ratekeeper_rules::{Format, Registry, RuleFile};
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
///     .cost("by-method", |head| if head.method() == "GET" { 1 } else { 5 })
///     .predicate("writes", |head| !head.method().is_safe());
///
/// let text = r#"
///     [[rules]]
///     name = "api"
///     quota = "100/minute"
///     key = { registered = "user" }
///     tiers = { pro = "1000/minute" }
///     tier-by = "plan"
///     cost = { registered = "by-method" }
///     when = "writes"
/// "#;
/// let file = RuleFile::parse("rules.toml", text, Format::Toml, &registry)?;
/// assert_eq!(file.rules().len(), 1);
/// # Ok::<(), ratekeeper_rules::RuleFileError>(())
/// ```
///
/// Keys, tiers, costs, predicates and settlements have separate namespaces: a key and a cost can have the
/// same name. Registering a name again replaces what it stood for.
#[derive(Clone, Default)]
#[must_use]
pub struct Registry {
    keys: BTreeMap<String, Arc<dyn KeyExtractor>>,
    tiers: BTreeMap<String, TierLookup>,
    costs: BTreeMap<String, CostFn>,
    predicates: BTreeMap<String, PredicateFn>,
    settlings: BTreeMap<String, SettleFn>,
    /// Whether names under which nothing was registered are accepted as well.
    any: bool,
    /// The result of a lookup under whose name nothing was registered.
    any_tier: TierChoice,
    /// The largest document that is read; `None` for the default.
    max_size: Option<usize>,
}

/// How a caller's tier is found.
#[derive(Clone)]
pub(crate) enum TierLookup {
    Now(TierFn),
    Later(AsyncTierFn),
}

impl TierLookup {
    /// The rule, with this lookup of tiers.
    pub(crate) fn add_to(self, rule: Rule) -> Rule {
        match self {
            Self::Now(lookup) => rule.tier_by(move |head| lookup(head)),
            Self::Later(lookup) => rule.tier_by_async(move |head| lookup(head)),
        }
    }
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// A registry that accepts every name, for inspecting a file without its application: checking it before
    /// it is deployed, or explaining it.
    ///
    /// A name that nothing was registered under gets the simplest stand-in. A key is the same for all, and
    /// shows the name. Callers are in no tier, or in [one](Self::any_tier). A request costs one. A predicate
    /// is true. What was charged is kept.
    ///
    /// ```
    /// use ratekeeper_rules::{Format, Registry, RuleFile};
    ///
    /// let text = r#"{ "rules": [{ "name": "api", "quota": "10/s", "key": { "registered": "user" } }] }"#;
    /// assert!(RuleFile::parse("rules.json", text, Format::Json, &Registry::new()).is_err());
    /// assert!(RuleFile::parse("rules.json", text, Format::Json, &Registry::any()).is_ok());
    /// ```
    ///
    /// Do not serve with it: everybody would be counted together.
    pub fn any() -> Self {
        Self { any: true, ..Self::default() }
    }

    /// The tier in which a lookup of [`any`](Self::any) puts callers if nothing was registered under its
    /// name.
    pub fn any_tier(self, tier: impl Into<TierChoice>) -> Self {
        Self { any_tier: tier.into(), ..self }
    }

    /// Sets how large a document with rules may be, in bytes; 1 MiB by default.
    ///
    /// This holds for every format, and wherever the document comes from. One that is larger is refused before
    /// it is parsed, and a file is not read beyond it. While a document is parsed it takes up to 200 times its
    /// size in memory.
    ///
    /// ```
    /// use ratekeeper_rules::{Format, Registry, RuleFile};
    ///
    /// let text = r#"{ "rules": [{ "name": "api", "quota": "10/s" }] }"#;
    /// let registry = Registry::new().max_document_size(20);
    /// let error = RuleFile::parse("rules.json", text, Format::Json, &registry).unwrap_err();
    /// assert_eq!(error.to_string(), "the rules in rules.json have 49 bytes; at most 20 are read");
    /// ```
    pub fn max_document_size(self, bytes: usize) -> Self {
        Self { max_size: Some(bytes), ..self }
    }

    /// Registers a key: `key = { registered = "…" }`.
    pub fn key(mut self, name: impl Into<String>, key: impl KeyExtractor) -> Self {
        self.keys.insert(name.into(), Arc::new(key));
        self
    }

    /// Registers a key taken from what an outer layer put into the request's extensions. See
    /// [`key::extension`](ratekeeper::key::extension).
    pub fn extension<T, K>(self, name: impl Into<String>, f: impl Fn(&T) -> K + Send + Sync + 'static) -> Self
    where
        T: Send + Sync + 'static,
        K: Into<Key>,
    {
        self.key(name, key::extension(f))
    }

    /// Registers a tier lookup: `tier-by = "…"`. See [`Rule::tier_by`].
    pub fn tier<T, F>(mut self, name: impl Into<String>, lookup: F) -> Self
    where
        T: Into<TierChoice>,
        F: Fn(&RequestHead<'_>) -> T + Send + Sync + 'static,
    {
        self.tiers.insert(name.into(), TierLookup::Now(Arc::new(move |head| lookup(head).into())));
        self
    }

    /// Registers an async tier lookup. See [`Rule::tier_by_async`].
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

    /// Registers a cost that depends on the request: `cost = { registered = "…" }`. See [`Rule::cost_by`].
    pub fn cost(
        mut self,
        name: impl Into<String>,
        cost: impl Fn(&RequestHead<'_>) -> u32 + Send + Sync + 'static,
    ) -> Self {
        self.costs.insert(name.into(), Arc::new(cost));
        self
    }

    /// Registers a predicate: `when = "…"`. See [`Rule::when`].
    pub fn predicate(
        mut self,
        name: impl Into<String>,
        predicate: impl Fn(&RequestHead<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.predicates.insert(name.into(), Arc::new(predicate));
        self
    }

    /// Registers the actual cost of a request, by its response: `settle-by = "…"`. See [`Rule::settle_by`].
    pub fn settle<T: Into<Settle>>(
        mut self,
        name: impl Into<String>,
        settle: impl Fn(&ResponseHead<'_>) -> T + Send + Sync + 'static,
    ) -> Self {
        self.settlings.insert(name.into(), Arc::new(move |response| settle(response).into()));
        self
    }

    pub(crate) fn max_size(&self) -> usize {
        self.max_size.unwrap_or(MAX_SIZE)
    }

    pub(crate) fn find_key(&self, name: &str) -> Option<Arc<dyn KeyExtractor>> {
        let stand_in = || Arc::new(key::constant(format!("registered:{name}"))) as Arc<dyn KeyExtractor>;
        self.find(&self.keys, name, stand_in)
    }

    pub(crate) fn find_tier_lookup(&self, name: &str) -> Option<TierLookup> {
        let stand_in = || {
            let tier = self.any_tier.clone();
            TierLookup::Now(Arc::new(move |_| tier.clone()))
        };
        self.find(&self.tiers, name, stand_in)
    }

    pub(crate) fn find_cost(&self, name: &str) -> Option<CostFn> {
        self.find(&self.costs, name, || Arc::new(|_| 1))
    }

    pub(crate) fn find_predicate(&self, name: &str) -> Option<PredicateFn> {
        self.find(&self.predicates, name, || Arc::new(|_| true))
    }

    pub(crate) fn find_settle(&self, name: &str) -> Option<SettleFn> {
        self.find(&self.settlings, name, || Arc::new(|_| Settle::Keep))
    }

    /// What was registered under a name, or its stand-in.
    fn find<T: Clone>(
        &self,
        registered: &BTreeMap<String, T>,
        name: &str,
        stand_in: impl FnOnce() -> T,
    ) -> Option<T> {
        registered.get(name).cloned().or_else(|| self.any.then(stand_in))
    }

    pub(crate) fn predicate_names(&self) -> Vec<&str> {
        self.predicates.keys().map(String::as_str).collect()
    }

    pub(crate) fn settle_names(&self) -> Vec<&str> {
        self.settlings.keys().map(String::as_str).collect()
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
            .field("predicates", &self.predicates.keys())
            .field("settlings", &self.settlings.keys())
            .field("any", &self.any)
            .field("max_document_size", &self.max_size())
            .finish()
    }
}
