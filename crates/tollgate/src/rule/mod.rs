//! What is limited, by what key, and how much.

mod compiled;
mod explain;
mod host;
mod hosts;
mod index;
mod map;
mod matching;
mod methods;
mod mode;
mod paths;
mod pattern;
mod rule_set;
mod set;
mod tier;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use tollgate_core::Quota;

pub(crate) use self::compiled::{Compiled, QuotaChoice};
pub use self::explain::{Counted, Explanation, Mismatch, Why};
pub(crate) use self::host::of_authority;
pub(crate) use self::index::Match;
pub use self::mode::Mode;
pub(crate) use self::mode::Role;
pub(crate) use self::pattern::decode;
pub use self::rule_set::RuleSet;
pub(crate) use self::set::{Matching, Rules};
pub use self::tier::{Tier, TierChoice};
pub(crate) use self::tier::{TierFuture, TierLookup};
use crate::RequestHead;
use crate::error::ConfigError;
use crate::failure::FailurePolicy;
use crate::key::{self, KeyExtractor, KeySource};
use crate::response_head::ResponseHead;
use crate::settle::Settle;

type Predicate = Arc<dyn Fn(&RequestHead<'_>) -> bool + Send + Sync>;
type CostFn = Arc<dyn Fn(&RequestHead<'_>) -> u32 + Send + Sync>;
type SettleFn = Arc<dyn Fn(&ResponseHead<'_>) -> Settle + Send + Sync>;

/// A name, what requests it matches, what key it counts by, and a quota.
///
/// On its own, `Rule::new("name", quota)` matches every request and counts by the peer's address.
///
/// ```
/// use http::Method;
/// use tollgate::{MINUTE, Quota, Rule, key};
///
/// # struct Pro;
/// let login = Rule::new("login", Quota::sliding_log(5, MINUTE))
///     .on(Method::POST, "/login")
///     .key((key::peer_ip(), key::path()));
/// let api = Rule::new("api", Quota::per_minute(60))
///     .on_path("/api/{*rest}")
///     .key(key::header("x-api-key").secret())
///     .tier("pro", Quota::per_minute(6_000))
///     // What an outer layer has found out about the caller, and not what the caller says.
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
    /// Methods and paths, each of which may be any.
    targets: Vec<(Option<Method>, Option<String>)>,
    by_hand: bool,
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

/// What a rule does with a request that has not got its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingKey {
    /// All such requests are counted together, under one key.
    #[default]
    Shared,
    /// The rule does not count such a request.
    Skip,
    /// The request is denied, unless the rule is [in shadow](Mode) for those that are counted together.
    Deny,
}

#[derive(Clone)]
enum Cost {
    Fixed(u32),
    By(CostFn),
}

/// Whether what was charged is settled afterwards, and by what.
#[derive(Clone, Default)]
struct Settling {
    by_response: Option<SettleFn>,
    in_handler: bool,
}

impl Rule {
    /// A rule that matches every request and counts by the peer's address.
    pub fn new(name: impl Into<String>, quota: Quota) -> Self {
        Self {
            name: name.into(),
            quota,
            key: KeySource::Peer(key::peer_ip()),
            missing_key: MissingKey::default(),
            hosts: Vec::new(),
            targets: Vec::new(),
            by_hand: false,
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

    /// What to do with a request that has not got the key. Such requests share one key unless it is said.
    pub fn on_missing_key(self, missing_key: MissingKey) -> Self {
        Self { missing_key, ..self }
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
    /// not from what the caller says. A tier that changes to and fro (or a lookup that fails and says `None`) gains nothing:
    /// two quotas at once are both counted, and together admit no more than the looser. Of more than two, all together admit
    /// no more than the loosest.
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

    /// What the request has really cost is told by the head of its response.
    ///
    /// What [`cost`](Self::cost) says is charged before the request goes on, so that many at once cannot slip under the
    /// limit. When the response is there, the difference is given back, or taken, whether or not it is left: what is
    /// beyond that is a debt, which is paid off before anything else is admitted. Nobody waits for this, and if there
    /// is no difference the store is not asked.
    ///
    /// A request that gets no response (its client goes away, the inner service fails or panics, the process is killed)
    /// has cost what was charged. What a handler [has settled](crate::Limits::settle) is not settled again.
    ///
    /// A gRPC call that fails at once has its `grpc-status` among the header fields. That of any other is in the trailers,
    /// which come after the head and are not seen here.
    ///
    /// ```
    /// use tollgate::{Quota, Rule};
    ///
    /// // A handler that knows what a query has cost tells it in the response's extensions.
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

    /// Requests whose response is like this cost nothing: what was charged is given back. See
    /// [`settle_by`](Self::settle_by), which this takes the place of.
    ///
    /// ```
    /// use http::{Method, StatusCode};
    /// use tollgate::{MINUTE, Quota, Rule};
    ///
    /// // Only failed logins count.
    /// let login = Rule::new("login", Quota::sliding_log(5, MINUTE))
    ///     .on(Method::POST, "/login")
    ///     .free_when(|response| response.status() != StatusCode::UNAUTHORIZED);
    /// // What is our fault, or was not changed, is free.
    /// let api = Rule::new("api", Quota::per_second(10)).free_when(|response| {
    ///     response.status().is_server_error() || response.status() == StatusCode::NOT_MODIFIED
    /// });
    /// ```
    pub fn free_when(self, is_free: impl Fn(&ResponseHead<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.settle_by(move |response| if is_free(response) { Settle::Free } else { Settle::Keep })
    }

    /// What the request has really cost is told by its handler, or by its body: see [`Limits`](crate::Limits) and
    /// [`MeterLayer`](crate::MeterLayer).
    pub fn settle_in_handler(mut self) -> Self {
        self.settling.in_handler = true;
        self
    }

    /// Requests that are over the limit are held back until they are not, if that takes no longer than this, instead of
    /// refused. Whatever the algorithm; a leaky bucket holds back what is in its queue anyhow, and that time is not counted
    /// to this one.
    ///
    /// - Those who wait for one key are served in the order in which they came to this process, and who comes while others
    ///   wait goes to the end of their line. Whom it would take too long there is refused at once, as far as that can be
    ///   told, and in any case when the time is over.
    /// - Whoever goes away leaves the line at once, as soon as the server notices. Nothing has been charged.
    /// - What is given back in this process, by a refund, a reset or a response that is settled, is there for whoever waits.
    ///   Rules that are [swapped](crate::Limiter::swap) are those of requests that come afterwards: who waits does so under the rules
    ///   that it came under, and who comes behind waits as well.
    /// - How many wait [is bounded](crate::LimiterBuilder::max_waiting).
    /// - With several rules, each that is over its limit must be ready to hold the request back for as long as it takes. Else the
    ///   request is refused at once, also while others wait.
    /// - Whom a rule denies [locally](crate::FailurePolicy::Local), as the store fails, is refused at once.
    /// - A [tier](crate::Tier::hold_up_to) can have its own time.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tollgate::{Quota, Rule};
    ///
    /// let smoothed = Rule::new("api", Quota::per_second(10)).hold_up_to(Duration::from_millis(500));
    /// ```
    pub fn hold_up_to(self, up_to: Duration) -> Self {
        Self { hold: up_to, ..self }
    }

    /// What to do when the store cannot decide. Requests are allowed unless it is said.
    pub fn on_store_failure(self, failure: FailurePolicy) -> Self {
        Self { failure, ..self }
    }

    /// Whether what the rule says counts; it does unless it is said.
    pub fn mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// Counts, and says what it would do in metrics and logs, but does not do it: [`Mode::Shadow`].
    pub fn shadow(self) -> Self {
        self.mode(Mode::Shadow)
    }

    /// Has another quota run in shadow beside the rule's own, to see what it would do. What is counted under it is a counter
    /// of its own, under the name of the rule and `~candidate`.
    ///
    /// It is for those who are in no tier; [`candidate_of_tier`](Self::candidate_of_tier) is for the others.
    pub fn candidate(self, quota: Quota) -> Self {
        Self { candidate: Some(quota), ..self }
    }

    /// Has another quota run in shadow beside that of a [tier](Self::tier).
    pub fn candidate_of_tier(mut self, tier: impl Into<String>, quota: Quota) -> Self {
        self.tier_candidates.push((tier.into(), quota));
        self
    }

    /// Whether header fields tell of the rule while it is in shadow, as if it were enforced; they do not unless it is said.
    ///
    /// As nobody waits for what a rule in shadow says, a store that is asked over the network may not have answered when the
    /// response is there. Then the fields do not tell of it.
    pub fn show_in_shadow(self, on: bool) -> Self {
        Self { shows_shadow: on, ..self }
    }

    /// Whether the rule makes sense by itself: what [`LimiterBuilder::build`](crate::LimiterBuilder::build) would say of it.
    ///
    /// ```
    /// use tollgate::{Quota, Rule};
    ///
    /// assert!(Rule::new("api", Quota::per_second(10)).on_path("/api").check().is_ok());
    /// assert!(Rule::new("api", Quota::per_second(10)).on_path("api").check().is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// When it does not. The error is the first that is found, and says why.
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
