//! What is limited, by what key, and how much.

mod index;
mod pattern;
mod set;
mod tier;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use http::Method;
use tollgate_core::Quota;

pub(crate) use self::pattern::{Pattern, decode};
pub(crate) use self::set::{Compiled, Matching, QuotaChoice, RuleSet};
pub use self::tier::{Tier, TierChoice};
pub(crate) use self::tier::{TierFuture, TierLookup};
use crate::RequestHead;
use crate::failure::FailurePolicy;
use crate::key::{self, KeyExtractor, KeySource};

type Predicate = Arc<dyn Fn(&RequestHead<'_>) -> bool + Send + Sync>;
type CostFn = Arc<dyn Fn(&RequestHead<'_>) -> u32 + Send + Sync>;

/// A name, what requests it matches, what key it counts by, and a quota.
///
/// On its own, `Rule::new("name", quota)` matches every request and counts by the peer's address.
///
/// ```
/// use http::Method;
/// use tollgate::{MINUTE, Quota, Rule, key};
///
/// let login = Rule::new("login", Quota::sliding_log(5, MINUTE))
///     .on(Method::POST, "/login")
///     .key((key::peer_ip(), key::path()));
/// let api = Rule::new("api", Quota::per_minute(60))
///     .on_path("/api/{*rest}")
///     .key(key::header("x-api-key").secret())
///     .tier("pro", Quota::per_minute(6_000))
///     .tier_by(|head| head.headers().contains_key("x-pro").then_some("pro"));
/// # let _ = (login, api);
/// ```
#[derive(Clone)]
#[must_use]
pub struct Rule {
    name: String,
    quota: Quota,
    key: KeySource,
    missing_key: MissingKey,
    paths: Vec<(Option<Method>, String)>,
    predicates: Vec<Predicate>,
    tiers: Vec<(String, Tier)>,
    tier_lookup: Option<TierLookup>,
    cost: Cost,
    failure: FailurePolicy,
}

/// What a rule does with a request that has not got its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKey {
    /// All such requests are counted together, under one key.
    #[default]
    Shared,
    /// The rule does not count such a request.
    Skip,
    /// The request is denied.
    Deny,
}

#[derive(Clone)]
enum Cost {
    Fixed(u32),
    By(CostFn),
}

impl Rule {
    /// A rule that matches every request and counts by the peer's address.
    pub fn new(name: impl Into<String>, quota: Quota) -> Self {
        Self {
            name: name.into(),
            quota,
            key: KeySource::Peer(key::peer_ip()),
            missing_key: MissingKey::default(),
            paths: Vec::new(),
            predicates: Vec::new(),
            tiers: Vec::new(),
            tier_lookup: None,
            cost: Cost::Fixed(1),
            failure: FailurePolicy::default(),
        }
    }

    /// Counts by this key.
    pub fn key(self, key: impl KeyExtractor) -> Self {
        Self { key: KeySource::new(key), ..self }
    }

    /// What to do with a request that has not got the key. Such requests share one key unless it is said.
    pub fn on_missing_key(self, missing_key: MissingKey) -> Self {
        Self { missing_key, ..self }
    }

    /// Matches requests with this method and path; said several times, any of them.
    ///
    /// Paths are written as in axum: `/users/{id}`, `/files/{*rest}`. `GET` matches `HEAD` as well, as
    /// the same handler serves it.
    pub fn on(mut self, method: Method, path: impl Into<String>) -> Self {
        self.paths.push((Some(method), path.into()));
        self
    }

    /// Matches requests with this path, whatever their method; said several times, any of them.
    pub fn on_path(mut self, path: impl Into<String>) -> Self {
        self.paths.push((None, path.into()));
        self
    }

    /// Matches only requests of which this is true; said several times, all of them.
    pub fn when(mut self, predicate: impl Fn(&RequestHead<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.predicates.push(Arc::new(predicate));
        self
    }

    /// Has a tier: callers who are in it have this quota, or none, instead of the rule's own.
    ///
    /// Who is in it is for [`tier_by`](Self::tier_by) to say. A caller who changes tiers keeps what it
    /// has used.
    pub fn tier(mut self, name: impl Into<String>, tier: impl Into<Tier>) -> Self {
        self.tiers.push((name.into(), tier.into()));
        self
    }

    /// Finds a caller's tier: its name, or a quota for this caller alone, or `None` for the rule's own.
    ///
    /// Whoever can choose the tier chooses the quota: take it from what the server knows of the caller,
    /// not from what the caller says. And let it be the caller's and not the request's: what was used above a
    /// smaller tier's quota is forgiven when that tier is asked, so a tier that changes to and fro (or a lookup
    /// that fails and says `None`) gives budget back.
    pub fn tier_by<T, F>(self, lookup: F) -> Self
    where
        T: Into<TierChoice>,
        F: Fn(&RequestHead<'_>) -> T + Send + Sync + 'static,
    {
        let lookup = TierLookup::Now(Arc::new(move |head| lookup(head).into()));
        Self { tier_lookup: Some(lookup), ..self }
    }

    /// Finds a caller's tier by asking somebody else.
    ///
    /// The closure takes what it needs from the head before it waits.
    pub fn tier_by_async<T, U, F>(self, lookup: F) -> Self
    where
        T: Into<TierChoice>,
        U: Future<Output = T> + Send + 'static,
        F: Fn(&RequestHead<'_>) -> U + Send + Sync + 'static,
    {
        let lookup = TierLookup::Later(Arc::new(move |head| {
            let tier = lookup(head);
            Box::pin(async move { tier.await.into() }) as TierFuture
        }));
        Self { tier_lookup: Some(lookup), ..self }
    }

    /// What a request costs; one unless it is said.
    pub fn cost(self, cost: u32) -> Self {
        Self { cost: Cost::Fixed(cost), ..self }
    }

    /// What a request costs, depending on the request.
    pub fn cost_by(self, cost: impl Fn(&RequestHead<'_>) -> u32 + Send + Sync + 'static) -> Self {
        Self { cost: Cost::By(Arc::new(cost)), ..self }
    }

    /// What to do when the store cannot decide. Requests are allowed unless it is said.
    pub fn on_store_failure(self, failure: FailurePolicy) -> Self {
        Self { failure, ..self }
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("name", &self.name)
            .field("quota", &self.quota)
            .field("paths", &self.paths)
            .field("tiers", &self.tiers)
            .field("missing_key", &self.missing_key)
            .field("failure", &self.failure)
            .finish_non_exhaustive()
    }
}
