//! Charging without a request.

use std::borrow::Cow;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ratekeeper_core::{Charge, Decision, Key, MemoryStore, Store};
use smallvec::SmallVec;

use super::{Fallback, How, Limiter, Patience, Plan, Verdict};
use crate::error::LimiterError;
use crate::observe::Said;
use crate::rule::{Rules, TierChoice};

/// One or more charges, to be made together. Awaiting it makes them.
///
/// See [`Limiter::charge`].
///
/// # When the store fails
///
/// The caller gets a [`LimiterError::Store`] and decides what to do. There is a [`Decision`] only if some of
/// the rules [decide locally](crate::FailurePolicy::Local) and none [denies](crate::FailurePolicy::Deny). It
/// covers those rules alone: what the other rules would have decided is not in it. The limit of an
/// [`Outcome`](crate::Outcome) is then that of the share.
#[derive(Clone, Debug)]
#[must_use = "nothing is charged until it is awaited"]
pub struct ChargeBuilder {
    limiter: Limiter,
    wanted: Vec<Wanted>,
}

#[derive(Clone, Debug)]
struct Wanted {
    rule: String,
    key: Key,
    cost: Option<u32>,
    tier: Option<Cow<'static, str>>,
}

impl ChargeBuilder {
    pub(super) fn new(limiter: Limiter, rule: String, key: Key) -> Self {
        Self { limiter, wanted: vec![Wanted { rule, key, cost: None, tier: None }] }
    }

    /// Charges another key under another rule as well: both or neither.
    pub fn and(mut self, rule: impl Into<String>, key: impl Into<Key>) -> Self {
        self.wanted.push(Wanted { rule: rule.into(), key: key.into(), cost: None, tier: None });
        self
    }

    /// Sets the cost of the charge that was added last.
    ///
    /// By default it is the rule's cost, or one if that depends on a request.
    pub fn cost(mut self, cost: u32) -> Self {
        if let Some(last) = self.wanted.last_mut() {
            last.cost = Some(cost);
        }
        self
    }

    /// Sets the tier of the key that was added last, within its rule.
    pub fn tier(mut self, tier: impl Into<Cow<'static, str>>) -> Self {
        if let Some(last) = self.wanted.last_mut() {
            last.tier = Some(tier.into());
        }
        self
    }

    /// Returns what charging would return, without charging.
    ///
    /// Rules in [shadow](crate::Mode) report what they would decide if they were enforced.
    ///
    /// # Errors
    ///
    /// If there is no such rule or tier, or the store fails and no rule decides locally.
    pub async fn peek(self) -> Result<Decision, LimiterError> {
        let rules = Arc::clone(&self.limiter.rules());
        let plan = self.plan(&rules)?.enforced();
        let charges = plan.entries.iter().map(|planned| planned.charge(&rules, Patience::None));
        let answer = self.limiter.store().peek(&charges.collect::<SmallVec<[Charge<'_>; 4]>>());
        let error = match answer.await {
            Ok(decision) => return Ok(decision),
            Err(error) => error,
        };
        match self.limiter.fall_back(&rules, &plan, Patience::None, MemoryStore::look) {
            Fallback::Local(decision) => Ok(decision),
            Fallback::Allow | Fallback::Deny(_) => Err(LimiterError::Store(error)),
        }
    }

    /// Waits until the charges fit, and makes them.
    ///
    /// Use it for work that cannot be refused: jobs, messages, calls to a third-party API.
    ///
    /// Token and leaky buckets are reserved: the order is that in which callers reach the store, across all
    /// processes. For windows and logs, the caller waits and asks again. Callers in this process that wait
    /// for the same key are then served in the order in which they arrived, whatever they cost. Callers that
    /// do not wait are decided as usual, and may get ahead.
    ///
    /// Dropping the future gives back what was reserved, from a leaky bucket only if nobody is behind.
    ///
    /// ```
    /// use ratekeeper::{Limiter, Quota, Rule};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::builder().rule(Rule::new("mails", Quota::per_second(100).burst(1))).build()?;
    /// for mail in ["one", "two", "three"] {
    ///     limiter.charge("mails", "smtp.example.com").until_ready().await?;
    ///     println!("sending {mail}, ten milliseconds after the last");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The decision denies only if waiting cannot help, because a cost is above what its quota can ever hold.
    ///
    /// # Errors
    ///
    /// If there is no such rule or tier, if the store fails and no rule decides locally, or if
    /// too many wait already ([`LimiterError::Overloaded`]).
    pub async fn until_ready(self) -> Result<Decision, LimiterError> {
        self.wait(None).await
    }

    /// Like [`until_ready`](Self::until_ready), but waits no longer than `patience`.
    ///
    /// If it would take longer, the decision denies, and nothing is charged. A bucket denies at once.
    ///
    /// # Errors
    ///
    /// As for [`until_ready`](Self::until_ready).
    pub async fn ready_within(self, patience: Duration) -> Result<Decision, LimiterError> {
        self.wait(Some(patience)).await
    }

    async fn wait(self, up_to: Option<Duration>) -> Result<Decision, LimiterError> {
        let rules = Arc::clone(&self.limiter.rules());
        let plan = self.plan(&rules)?;
        self.limiter.admit_within(rules, plan, up_to).await
    }

    /// The plan of what to charge. A tier without a limit adds nothing.
    fn plan(&self, rules: &Rules) -> Result<Plan, LimiterError> {
        let mut plan = Plan::default();
        for wanted in &self.wanted {
            let number = rules.find_or(&wanted.rule)?;
            let rule = rules.rule(number);
            let choice = match &wanted.tier {
                None => TierChoice::Default,
                Some(tier) if rule.has_tier(tier) => TierChoice::Named(tier.clone()),
                Some(tier) => {
                    let (rule, tier) = (wanted.rule.clone(), tier.to_string());
                    return Err(LimiterError::UnknownTier { rule, tier });
                }
            };
            let cost = wanted.cost.unwrap_or_else(|| rule.fixed_cost());
            plan.add(rules, number, Some(wanted.key), choice, cost);
        }
        Ok(plan)
    }
}

impl IntoFuture for ChargeBuilder {
    type Output = Result<Decision, LimiterError>;
    type IntoFuture = ChargeFuture;

    fn into_future(self) -> ChargeFuture {
        ChargeFuture(Box::pin(async move {
            let (limiter, rules) = (&self.limiter, Arc::clone(&self.limiter.rules()));
            let plan = self.plan(&rules)?;
            let answer = limiter.ask(&rules, &plan, Patience::None).await;
            match limiter.judge(&rules, &plan, Patience::None, answer) {
                Verdict::Decided { decision, failure } => {
                    limiter.check(decision.at());
                    plan.observe_decision(&rules, &decision, How::after(failure.as_ref()));
                    if decision.is_admitted() && failure.is_none() {
                        limiter.shadow(&rules, &plan, None, None);
                    }
                    Ok(decision)
                }
                Verdict::Allowed(error) | Verdict::Unavailable { error, .. } => {
                    plan.observe_failure(&rules, &error, Said::Undecided, None);
                    Err(LimiterError::Store(error))
                }
            }
        }))
    }
}

/// The future of a [`ChargeBuilder`].
pub struct ChargeFuture(Pin<Box<dyn Future<Output = Result<Decision, LimiterError>> + Send>>);

impl Future for ChargeFuture {
    type Output = Result<Decision, LimiterError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for ChargeFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChargeFuture")
    }
}
