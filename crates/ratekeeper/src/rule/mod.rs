//! What is limited, by what key, and how much.

mod compiled;
mod explain;
mod failure;
mod hosts;
mod index;
mod map;
mod matching;
mod methods;
mod mode;
mod paths;
pub(crate) mod policy;
mod rule_set;
mod set;
mod settle;
mod tier;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use ratekeeper_core::Quota;

pub(crate) use self::compiled::{Compiled, QuotaChoice};
pub use self::explain::{Counted, Explanation, Mismatch, Why};
pub use self::failure::FailurePolicy;
pub use self::mode::Mode;
pub use self::rule_set::RuleSet;
pub(crate) use self::set::Rules;
pub use self::settle::Settle;
pub use self::tier::{Tier, TierChoice};
pub(crate) use self::tier::{TierFuture, TierLookup};
use crate::error::ConfigError;
use crate::key::{self, KeyExtractor, KeySource};
pub(crate) use crate::observe::Role;
use crate::request::RequestHead;
use crate::request::ResponseHead;

type Predicate = Arc<dyn Fn(&RequestHead<'_>) -> bool + Send + Sync>;
type CostFn = Arc<dyn Fn(&RequestHead<'_>) -> u32 + Send + Sync>;
type SettleFn = Arc<dyn Fn(&ResponseHead<'_>) -> Settle + Send + Sync>;

/// A name, the requests that it matches, the key that it counts by, and a quota.
///
/// On its own, `Rule::new("name", quota)` matches every request and counts by the peer's address.
///
/// ```
/// use http::Method;
/// use ratekeeper::{MINUTE, Quota, Rule, key};
///
/// # struct Pro;
/// let login = Rule::new("login", Quota::sliding_log(5, MINUTE))
///     .on(Method::POST, "/login")
///     .key((key::peer_ip(), key::path()));
/// let api = Rule::new("api", Quota::per_minute(60))
///     .on_path("/api/{*rest}")
///     .key(key::header("x-api-key").secret())
///     .tier("pro", Quota::per_minute(6_000))
///     // From what an outer layer has found out about the caller, not from what the caller sends.
///     .tier_by(|head| head.extension::<Pro>().map(|_| "pro"));
/// # let _ = (login, api);
/// ```
#[derive(Clone)]
#[must_use]
pub struct Rule {
    name: String,
    quota: Quota,
    key: KeySource,
    missing_key: MissingKey,
    hosts: Vec<String>,
    /// Methods and paths. `None` means any.
    targets: Vec<(Option<Method>, Option<String>)>,
    /// Paths that do not match.
    exceptions: Vec<String>,
    manual: bool,
    predicates: Vec<Predicate>,
    tiers: Vec<(String, Tier)>,
    tier_lookup: Option<TierLookup>,
    cost: Cost,
    settling: Settling,
    hold: Duration,
    failure: FailurePolicy,
    mode: Mode,
    shows_shadow: bool,
    candidate: Option<Quota>,
    tier_candidates: Vec<(String, Quota)>,
}

/// What a rule does with a request that does not have its key.
///
/// A key of several parts is there if any of its parts is, and a part that is always there, such as the path,
/// makes it so. A part that a request must have is [required](key::required).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKey {
    /// All such requests are counted together, under one key.
    #[default]
    Shared,
    /// The rule does not count such a request.
    Skip,
    /// The request is denied, unless the rule is [in shadow](Mode) for the requests without a key.
    Deny,
}

#[derive(Clone)]
enum Cost {
    Fixed(u32),
    By(CostFn),
}

/// Whether charges are settled afterwards, and by what.
#[derive(Clone, Default)]
struct Settling {
    by_response: Option<SettleFn>,
    in_handler: bool,
}

impl Rule {
    /// Creates a rule that matches every request and counts by the peer's address.
    pub fn new(name: impl Into<String>, quota: Quota) -> Self {
        Self {
            name: name.into(),
            quota,
            key: KeySource::Peer(key::peer_ip()),
            missing_key: MissingKey::default(),
            hosts: Vec::new(),
            targets: Vec::new(),
            exceptions: Vec::new(),
            manual: false,
            predicates: Vec::new(),
            tiers: Vec::new(),
            tier_lookup: None,
            cost: Cost::Fixed(1),
            settling: Settling::default(),
            hold: Duration::ZERO,
            failure: FailurePolicy::default(),
            mode: Mode::default(),
            shows_shadow: false,
            candidate: None,
            tier_candidates: Vec::new(),
        }
    }

    /// Counts by this key.
    pub fn key(self, key: impl KeyExtractor) -> Self {
        Self { key: KeySource::new(key), ..self }
    }

    /// What to do with a request that does not have the key. By default such requests share one key.
    pub fn on_missing_key(self, missing_key: MissingKey) -> Self {
        Self { missing_key, ..self }
    }

    /// Adds a tier: callers in it have this quota, or no limit, instead of the rule's own quota.
    ///
    /// [`tier_by`](Self::tier_by) determines who is in it; without it, only a rule that is charged
    /// [by hand](Self::manual) may have tiers. A caller who changes tiers keeps what it has used.
    pub fn tier(mut self, name: impl Into<String>, tier: impl Into<Tier>) -> Self {
        self.tiers.push((name.into(), tier.into()));
        self
    }

    /// Finds a caller's tier: its name, a quota for this caller alone, or `None` for the rule's own quota.
    ///
    /// Whoever can choose the tier chooses the quota: derive it from what the server knows about the caller,
    /// not from what the caller sends. If a tier changes back and forth (or a lookup fails and returns `None`),
    /// each charge is decided under its own quota and counted under both.
    pub fn tier_by<T, F>(self, lookup: F) -> Self
    where
        T: Into<TierChoice>,
        F: Fn(&RequestHead<'_>) -> T + Send + Sync + 'static,
    {
        let lookup = TierLookup::Now(Arc::new(move |head| lookup(head).into()));
        Self { tier_lookup: Some(lookup), ..self }
    }

    /// Finds a caller's tier with an async lookup.
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

    /// What a request costs. One by default.
    pub fn cost(self, cost: u32) -> Self {
        Self { cost: Cost::Fixed(cost), ..self }
    }

    /// What a request costs, depending on the request.
    pub fn cost_by(self, cost: impl Fn(&RequestHead<'_>) -> u32 + Send + Sync + 'static) -> Self {
        Self { cost: Cost::By(Arc::new(cost)), ..self }
    }

    /// Settles what a request has really cost by the head of its response.
    ///
    /// The [`cost`](Self::cost) is charged before the request is forwarded, so that many concurrent requests
    /// cannot slip under the limit. When the response arrives, the difference is given back, or taken,
    /// whether or not it is left. Anything beyond what is left is a debt, which is paid off before anything
    /// else is admitted. Nothing waits for this, and if there is no difference the store is not asked.
    ///
    /// A request that gets no response (its client goes away, the inner service fails or panics, the process
    /// is killed) costs what was charged. What a handler [has settled](crate::Limits::settle) is not settled
    /// again.
    ///
    /// A gRPC call that fails immediately has its `grpc-status` among the header fields. For any other call
    /// it is in the trailers, which come after the head and are not seen here.
    ///
    /// ```
    /// use ratekeeper::{Quota, Rule};
    ///
    /// // A handler reports the real cost of a query in the response's extensions.
    /// #[derive(Clone)]
    /// struct QueryCost(u32);
    ///
    /// let rule = Rule::new("queries", Quota::per_minute(1_000))
    ///     .cost(10)
    ///     .settle_by(|response| response.extension().map(|QueryCost(cost)| *cost));
    /// ```
    pub fn settle_by<T: Into<Settle>>(
        mut self,
        settle: impl Fn(&ResponseHead<'_>) -> T + Send + Sync + 'static,
    ) -> Self {
        self.settling.by_response = Some(Arc::new(move |response| settle(response).into()));
        self
    }

    /// Makes requests free whose response satisfies the predicate: what was charged is given back.
    ///
    /// See [`settle_by`](Self::settle_by), which this replaces.
    ///
    /// ```
    /// use http::{Method, StatusCode};
    /// use ratekeeper::{MINUTE, Quota, Rule};
    ///
    /// // Only failed logins count.
    /// let login = Rule::new("login", Quota::sliding_log(5, MINUTE))
    ///     .on(Method::POST, "/login")
    ///     .free_when(|response| response.status() != StatusCode::UNAUTHORIZED);
    /// // Server errors and unmodified responses are free.
    /// let api = Rule::new("api", Quota::per_second(10)).free_when(|response| {
    ///     response.status().is_server_error() || response.status() == StatusCode::NOT_MODIFIED
    /// });
    /// ```
    pub fn free_when(self, is_free: impl Fn(&ResponseHead<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.settle_by(move |response| if is_free(response) { Settle::Free } else { Settle::Keep })
    }

    /// Lets the handler or the body settle what the request has really cost.
    ///
    /// See [`Limits`](crate::Limits) and [`MeterLayer`](crate::meter::MeterLayer).
    pub fn settle_in_handler(mut self) -> Self {
        self.settling.in_handler = true;
        self
    }

    /// Holds requests back that are over the limit, for at most this long, instead of refusing them.
    ///
    /// A request that is over the limit reserves what it needs: the store takes the tokens at once, and the
    /// layer forwards the request when they would have come back. If that takes longer than `up_to`, the
    /// request is refused immediately. So requests are served in the order in which they reach the store,
    /// across all processes, and the store is asked once.
    ///
    /// - The quota has to be a token bucket or a leaky bucket, and the time at most a minute. Anything else is
    ///   a [configuration error](crate::ConfigError::Hold). Without this method, a leaky bucket holds back
    ///   whatever fits into its queue.
    /// - A client that goes away gives back what was reserved for it, as soon as the server notices. Those
    ///   behind keep their delays. A leaky bucket takes back only the last place of its queue.
    /// - The number of waiting requests [is bounded](crate::LimiterBuilder::max_waiting).
    /// - With several rules, all have to admit the request, and it waits for the longest of their delays.
    /// - A [tier](crate::Tier::hold_up_to) can have its own time.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratekeeper::{Quota, Rule};
    ///
    /// let smoothed = Rule::new("api", Quota::per_second(10)).hold_up_to(Duration::from_millis(500));
    /// ```
    pub fn hold_up_to(self, up_to: Duration) -> Self {
        Self { hold: up_to, ..self }
    }

    /// What to do when the store cannot decide. By default requests are allowed.
    pub fn on_store_failure(self, failure: FailurePolicy) -> Self {
        Self { failure, ..self }
    }

    /// Whether the rule is enforced. It is by default.
    pub fn mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// Counts and reports in metrics and logs what the rule would do, without doing it: [`Mode::Shadow`].
    pub fn shadow(self) -> Self {
        self.mode(Mode::Shadow)
    }

    /// Runs another quota in shadow beside the rule's own, to see what it would do.
    ///
    /// It has its own counter, under the name of the rule followed by `~candidate`.
    ///
    /// It applies to callers who are in no tier; for the others use
    /// [`candidate_of_tier`](Self::candidate_of_tier).
    pub fn candidate(self, quota: Quota) -> Self {
        Self { candidate: Some(quota), ..self }
    }

    /// Runs another quota in shadow beside that of a [tier](Self::tier).
    pub fn candidate_of_tier(mut self, tier: impl Into<String>, quota: Quota) -> Self {
        self.tier_candidates.push((tier.into(), quota));
        self
    }

    /// Whether header fields report the rule while it is in shadow, as if it were enforced. Off by default.
    ///
    /// Nothing waits for a rule in shadow, so a store that is asked over the network may not have answered
    /// when the response is ready. In that case the fields do not report the rule.
    pub fn show_in_shadow(self, on: bool) -> Self {
        Self { shows_shadow: on, ..self }
    }

    /// Checks the rule by itself, as [`LimiterBuilder::build`](crate::LimiterBuilder::build) would.
    ///
    /// ```
    /// use ratekeeper::{Quota, Rule};
    ///
    /// assert!(Rule::new("api", Quota::per_second(10)).on_path("/api").check().is_ok());
    /// assert!(Rule::new("api", Quota::per_second(10)).on_path("api").check().is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// If the rule is invalid. The error is the first one found, and says why.
    pub fn check(&self) -> Result<(), ConfigError> {
        Rules::new(vec![self.clone()]).map(drop)
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rule")
            .field("name", &self.name)
            .field("quota", &self.quota)
            .field("hosts", &self.hosts)
            .field("targets", &self.targets)
            .field("exceptions", &self.exceptions)
            .field("tiers", &self.tiers)
            .field("missing_key", &self.missing_key)
            .field("failure", &self.failure)
            .field("mode", &self.mode)
            .field("shows_shadow", &self.shows_shadow)
            .field("candidate", &self.candidate)
            .field("tier_candidates", &self.tier_candidates)
            .finish_non_exhaustive()
    }
}
