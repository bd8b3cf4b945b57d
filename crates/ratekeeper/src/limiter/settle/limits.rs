//! What a handler sees of the limits of its request, and what it can do about them.

use std::fmt;
use std::sync::Arc;

use http::Extensions;
use ratekeeper_core::{Decision, Outcome, RuleName};

use super::account::Change;
use super::{Account, Measure, Metered};
use crate::error::LimiterError;

/// The limits of a request, for its handler: what was decided, and what the request really costs.
///
/// It is in the request's extensions if a rule of the limiter is settled
/// ([`Rule::settle_in_handler`](crate::Rule::settle_in_handler),
/// [`Rule::settle_by`](crate::Rule::settle_by)). With the `axum` feature it is an extractor. If no rule is
/// settled, it can still be extracted, read-only, unless the layer [does not
/// expose](crate::RateLimitLayer::expose_decision) its decisions. A request that a layer lets through
/// uncounted has its limits as well, but no [`decision`](Self::decision).
///
#[cfg_attr(feature = "axum", doc = "```")]
#[cfg_attr(not(feature = "axum"), doc = "```ignore")]
/// use axum::{Router, routing::post};
/// use ratekeeper::{Limiter, Limits, MINUTE, Quota, RateLimitLayer, Rule, key};
///
/// async fn ask(limits: Limits, question: String) -> String {
///     let answer = format!("You asked: {question}");
///     // The reservation was a guess. This is the real cost.
///     let tokens = answer.split_whitespace().count() as u32;
///     limits.settle("tokens", tokens).expect("the limiter has this rule");
///     answer
/// }
///
/// # fn main() -> Result<(), ratekeeper::ConfigError> {
/// let limiter = Limiter::builder()
///     .rule(
///         Rule::new("tokens", Quota::token_bucket(10_000, MINUTE))
///             .key(key::bearer())
///             .cost(500)
///             .settle_in_handler(),
///     )
///     .build()?;
/// let app: Router = Router::new().route("/ask", post(ask)).layer(RateLimitLayer::new(limiter));
/// # Ok(())
/// # }
/// ```
///
/// # What is left unsettled
///
/// What was charged when the request arrived stays charged if the handler panics or never settles, the client
/// goes away, or the process is killed. So reserve the likely cost, and rather more than less.
///
/// # Which request
///
/// Clones belong to the same request, and can be moved into a task or a stream that outlives the handler.
/// Settling, refunding and charging more change what stands charged. All of it together never gives back more
/// than was taken, except for what a bucket [forgives](Self::settle). The header fields of the response
/// report what was decided at first.
///
/// None of this waits for the store, except [`charge`](Self::charge): changes are handed over to the store,
/// and the response does not wait for them.
#[derive(Clone)]
pub struct Limits {
    inner: Inner,
    /// Those of an outer layer.
    outer: Option<Arc<Self>>,
}

#[derive(Clone)]
enum Inner {
    Open(Arc<Account>),
    /// Read-only.
    Closed(Arc<Decision>),
    /// No rule has counted the request.
    Uncounted,
}

/// Marks, in the extensions, a request that a layer lets through uncounted. It has no size, so inserting it
/// takes no memory.
#[derive(Clone, Copy, Debug)]
struct Uncounted;

impl Limits {
    pub(crate) fn new(account: Arc<Account>) -> Self {
        Self { inner: Inner::Open(account), outer: None }
    }

    /// Puts them into a request's extensions, in front of those of an outer layer.
    pub(crate) fn put(mut self, extensions: &mut Extensions) {
        // If this layer does not expose its decisions, the exposed one belongs to a layer around it.
        let exposed = extensions.get::<Decision>().filter(|exposed| self.own_decision() != Some(exposed));
        let outer = extensions.get::<Self>().cloned();
        self.outer = match exposed {
            Some(exposed) => Some(Self::around(outer, exposed)),
            None => outer,
        }
        .map(Arc::new);
        extensions.insert(self);
    }

    /// The limits of the layers that have inserted these limits and exposed this decision.
    fn around(limits: Option<Self>, exposed: &Decision) -> Self {
        let is_it = |limits: &Self| limits.own_decision() == Some(exposed);
        match limits {
            // The decision belongs to a layer that has inserted its limits as well.
            Some(limits) if limits.layers().any(is_it) => limits,
            // The decision was exposed by a layer inside the others that has no limits of its own. The others
            // keep what was there when they were inserted.
            outer => Self { inner: Inner::Closed(Arc::new(exposed.clone())), outer: outer.map(Arc::new) },
        }
    }

    /// Marks a request that proceeds uncounted.
    pub(crate) fn mark_uncounted(extensions: &mut Extensions) {
        extensions.insert(Uncounted);
    }

    /// The limits of the request with these extensions.
    ///
    /// `None` if there is no [layer](crate::RateLimitLayer) around, or only layers that have no rule that is
    /// settled and [do not expose](crate::RateLimitLayer::expose_decision) their decisions.
    #[must_use]
    pub fn of(extensions: &Extensions) -> Option<Self> {
        let limits = extensions.get::<Self>().cloned();
        if let Some(exposed) = extensions.get::<Decision>() {
            return Some(Self::around(limits, exposed));
        }
        let uncounted =
            || extensions.get::<Uncounted>().map(|_| Self { inner: Inner::Uncounted, outer: None });
        limits.or_else(uncounted)
    }

    /// The decision of the innermost layer that counts the request.
    ///
    /// `None` if no layer does, or the store could not decide.
    #[must_use]
    pub fn decision(&self) -> Option<&Decision> {
        self.layers().find_map(Self::own_decision)
    }

    /// The decision of the layer that these limits belong to.
    fn own_decision(&self) -> Option<&Decision> {
        match &self.inner {
            Inner::Open(account) => account.decision(),
            Inner::Closed(decision) => Some(decision),
            Inner::Uncounted => None,
        }
    }

    /// The outcome of each rule, starting with those of the innermost layer.
    ///
    /// Of the layers that have no rule that is settled, only the innermost is included.
    pub fn outcomes(&self) -> impl Iterator<Item = (RuleName, &Outcome)> {
        self.layers().filter_map(Self::own_decision).flat_map(Decision::outcomes)
    }

    /// The outcome of the rule of this name.
    ///
    /// `None` if the rule does not count the request, or is not among the [outcomes](Self::outcomes).
    #[must_use]
    pub fn outcome(&self, rule: &str) -> Option<&Outcome> {
        self.layers().find_map(|limits| limits.own_decision()?.outcome(rule))
    }

    /// What stands charged for the request under a rule; `None` if the rule does not count it.
    ///
    /// # Errors
    ///
    /// If the limiter has no such rule, or no rule that is settled.
    pub fn charged(&self, rule: &str) -> Result<Option<u32>, LimiterError> {
        self.ask(rule, |account| account.charged(rule))
    }

    /// Settles the total cost of the request under a rule.
    ///
    /// The difference from what stands charged is given back, or taken, whether or not it is left. Anything
    /// taken beyond what is left is a debt, which is paid off before anything else is admitted.
    ///
    /// A bucket owes at most as much as it holds, and forgives the rest. So if a cost is first raised and
    /// later lowered again, the bucket gives back no more than it holds. If others had left it in debt by
    /// then, some of the raise was forgiven, and is given back all the same, which pays off what the others
    /// owe. So reserve the likely cost at first, and raise it once.
    ///
    /// If the rule does not count the request (another path, a tier without a limit, a store that could not
    /// decide), nothing happens. It can be called again; the last call counts.
    ///
    /// # Errors
    ///
    /// If the limiter has no such rule, or no rule that is settled.
    pub fn settle(&self, rule: &str, cost: u32) -> Result<(), LimiterError> {
        self.ask(rule, |account| account.change(rule, Change::To(cost)))
    }

    /// Raises the cost of the request under a rule to this much, unless more is charged already.
    pub(super) fn settle_at_least(&self, rule: &str, cost: u32) -> Result<(), LimiterError> {
        self.ask(rule, |account| account.change(rule, Change::AtLeast(cost)))
    }

    /// Gives back part of what stands charged for the request under a rule, and never more than that.
    ///
    /// # Errors
    ///
    /// If the limiter has no such rule, or no rule that is settled.
    pub fn refund(&self, rule: &str, cost: u32) -> Result<(), LimiterError> {
        self.ask(rule, |account| account.change(rule, Change::Less(cost)))
    }

    /// Charges more for the request under a rule, to the same key, if it fits.
    ///
    /// Returns `None` if the rule does not count the request.
    ///
    /// The decision covers this charge alone. If it denies, nothing was charged, and the handler decides what
    /// to do. Rules in [shadow](crate::Mode) and candidates do not count it.
    ///
    /// # Errors
    ///
    /// If the limiter has no such rule, or no rule that is settled, or the store fails.
    pub async fn charge(&self, rule: &str, cost: u32) -> Result<Option<Decision>, LimiterError> {
        let account = self.ask(rule, |account| account.charged(rule).map(|_| Arc::clone(account)))?;
        account.charge(rule, cost).await
    }

    /// Wraps a body so that it settles a rule when it has ended: each piece of it adds what `measure`
    /// returns.
    ///
    /// ```
    /// # use axum::body::{Body, Bytes};
    /// # use axum::response::Response;
    /// # use ratekeeper::{LimiterError, Limits};
    /// // The measure is a closure that sees each piece, or `ByteCount`.
    /// async fn stream(limits: Limits) -> Result<Response, LimiterError> {
    ///     let words = |piece: &Bytes| piece.split(|byte| *byte == b' ').count() as u32;
    ///     let body = limits.meter("words", Body::from("one two three"), words)?;
    ///     Ok(Response::new(Body::new(body)))
    /// }
    /// # fn main() {}
    /// ```
    ///
    /// # Errors
    ///
    /// If the limiter has no such rule, or no rule that is settled.
    pub fn meter<B, M>(&self, rule: &str, body: B, measure: M) -> Result<Metered<B, M>, LimiterError>
    where
        B: http_body::Body,
        M: Measure<B::Data>,
    {
        self.charged(rule)?;
        Ok(Metered::new(body, measure, Some((self.clone(), rule.into()))))
    }

    /// These limits, and those of the layers around.
    fn layers(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |limits| limits.outer.as_deref())
    }

    /// Asks the innermost layer that has the rule.
    fn ask<T>(
        &self,
        rule: &str,
        ask: impl Fn(&Arc<Account>) -> Result<T, LimiterError>,
    ) -> Result<T, LimiterError> {
        let mut answer = Err(LimiterError::NotSettled { rule: rule.to_owned() });
        for limits in self.layers() {
            if let Inner::Open(account) = &limits.inner {
                answer = ask(account);
                if !matches!(answer, Err(LimiterError::UnknownRule(_))) {
                    break;
                }
            }
        }
        answer
    }
}

impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limits").field("decision", &self.decision()).finish_non_exhaustive()
    }
}
