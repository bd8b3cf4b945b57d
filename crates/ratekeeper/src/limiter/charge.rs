//! Charging without a request.

use std::borrow::Cow;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{Charge, Decision, Key, MemoryStore, Store, StoreError};
use tokio::time::Instant;

use super::{Fallback, Limiter, Plan};
use crate::error::LimiterError;
use crate::hold::{Patience, Turn};
use crate::observe::{self, How, Said};
use crate::rule::TierChoice;

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
        let plan = self.plan()?.enforced();
        let looked = self.limiter.store().peek(&plan.charges()).await;
        looked.or_else(|error| self.fall_back(&plan, error, MemoryStore::look))
    }

    /// Waits until the charges fit, and makes them.
    ///
    /// Use it for work that cannot be refused: jobs, messages, calls to a third-party API. Callers in this
    /// process that wait for the same key are served in the order in which they arrived, whatever they cost,
    /// and each asks the store only when it is its turn. A leaky bucket's delay is waited for as well.
    /// Callers that do not wait are decided as usual, and may get ahead.
    ///
    /// The first future in line has to be polled. While it is kept without being polled, those behind it
    /// wait, for as long as they are willing to.
    ///
    /// Dropping the future leaves the line and charges nothing. If a leaky bucket was already holding it
    /// back, its place there is given back if the spacing still holds, and everything else that was charged
    /// with it is given back, too.
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
    /// If there is no such rule or tier, if the store fails and no rule decides locally, or if there is no
    /// room to wait ([`LimiterError::NoRoom`]).
    pub async fn until_ready(self) -> Result<Decision, LimiterError> {
        self.wait(None).await
    }

    /// Like [`until_ready`](Self::until_ready), but waits no longer than `patience`.
    ///
    /// A leaky bucket's delay is included. If it would take longer, the decision denies as soon as that is
    /// clear, and nothing is charged. To know that, a leaky bucket is looked at before it is charged. If others
    /// get in line in between and make the wait too long, the charges are given back; the place in the queue
    /// only if nobody has got in line behind it.
    ///
    /// # Errors
    ///
    /// As for [`until_ready`](Self::until_ready).
    pub async fn ready_within(self, patience: Duration) -> Result<Decision, LimiterError> {
        self.wait(Some(patience)).await
    }

    async fn wait(self, up_to: Option<Duration>) -> Result<Decision, LimiterError> {
        let plan = self.plan()?;
        let (limiter, patience, started) = (self.limiter, Patience::Own(up_to), Instant::now());
        let left = || up_to.map(|up_to| up_to.saturating_sub(started.elapsed()));
        let denied = if limiter.has_line(&plan, patience) {
            None
        } else {
            let (answer, is_local) = match limiter.held_too_long(&plan, patience, started).await {
                Ok(None) => limiter.ask(&plan, patience).await,
                Ok(Some(denied)) => return limiter.hold_back(plan, denied, How::AtOnce, None).await,
                Err(error) => limiter.or_here(Err(error), &plan, patience),
            };
            let decision =
                answer.inspect_err(|error| observe::failed(&plan, error, Said::Undecided, None))?;
            if decision.is_admitted() || !limiter.is_worth_waiting(&plan, patience, &decision) {
                let how = if is_local { How::Locally } else { How::AtOnce };
                return limiter.hold_back(plan, decision, how, left()).await;
            }
            Some(decision)
        };
        match limiter.clone().take_turn(plan, patience, denied).await {
            (plan, Turn::Answered { answer, is_local }) => {
                let decision =
                    answer.inspect_err(|error| observe::failed(&plan, error, Said::Undecided, None))?;
                let how = if is_local { How::Locally } else { How::Waited };
                limiter.hold_back(plan, decision, how, left()).await
            }
            (plan, Turn::NoRoom(_)) => {
                observe::no_room(&plan);
                Err(LimiterError::NoRoom)
            }
        }
    }

    /// The plan of what to charge. A tier without a limit adds nothing.
    fn plan(&self) -> Result<Plan, LimiterError> {
        let rules = self.limiter.rules();
        let mut plan = Plan::new(Arc::clone(&rules));
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
            plan.add(number, Some(wanted.key), choice, cost);
        }
        Ok(plan)
    }

    /// The result when the store fails.
    fn fall_back(
        &self,
        plan: &Plan,
        error: StoreError,
        decide: impl FnOnce(&MemoryStore, &[Charge<'_>]) -> Decision,
    ) -> Result<Decision, LimiterError> {
        match self.limiter.fall_back(plan, decide) {
            Fallback::Local(decision) => Ok(decision),
            Fallback::Allow | Fallback::Deny(_) => Err(LimiterError::Store(error)),
        }
    }
}

impl IntoFuture for ChargeBuilder {
    type Output = Result<Decision, LimiterError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let plan = self.plan()?;
            match self.limiter.decide(&plan).await {
                Ok(decision) => {
                    observe::decided(&plan, &decision, How::AtOnce);
                    self.limiter.glance(decision.at());
                    self.limiter.shadow_admitted(&plan, &decision);
                    Ok(decision)
                }
                Err(error) => {
                    let decided = self.fall_back(&plan, error, MemoryStore::decide);
                    match &decided {
                        Ok(decision) => observe::decided(&plan, decision, How::Locally),
                        Err(LimiterError::Store(error)) => {
                            observe::failed(&plan, error, Said::Undecided, None);
                        }
                        Err(_) => {}
                    }
                    decided
                }
            }
        })
    }
}
