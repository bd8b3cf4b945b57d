//! Charging without a request.

use std::borrow::Cow;
use std::future::{Future, IntoFuture};
use std::pin::Pin;

use tollgate_core::{Charge, Decision, Key, Store};

use super::Limiter;
use crate::error::LimiterError;
use crate::rule::{QuotaChoice, TierChoice};

/// One or several charges, to be made together. Awaiting it makes them.
///
/// See [`Limiter::charge`].
#[derive(Clone, Debug)]
#[must_use = "nothing is charged until it is awaited"]
pub struct ChargeBuilder<S> {
    limiter: Limiter<S>,
    wanted: Vec<Wanted>,
}

#[derive(Clone, Debug)]
struct Wanted {
    rule: String,
    key: Key,
    cost: Option<u32>,
    tier: Option<Cow<'static, str>>,
}

impl<S: Store> ChargeBuilder<S> {
    pub(super) fn new(limiter: Limiter<S>, rule: String, key: Key) -> Self {
        Self { limiter, wanted: vec![Wanted { rule, key, cost: None, tier: None }] }
    }

    /// Charges another key under another rule as well: both or none.
    pub fn and(mut self, rule: impl Into<String>, key: impl Into<Key>) -> Self {
        self.wanted.push(Wanted { rule: rule.into(), key: key.into(), cost: None, tier: None });
        self
    }

    /// What the charge that was named last costs; what its rule says (or one, where that depends on a
    /// request) unless it is said.
    pub fn cost(mut self, cost: u32) -> Self {
        if let Some(last) = self.wanted.last_mut() {
            last.cost = Some(cost);
        }
        self
    }

    /// In which tier of its rule the key that was named last is.
    pub fn tier(mut self, tier: impl Into<Cow<'static, str>>) -> Self {
        if let Some(last) = self.wanted.last_mut() {
            last.tier = Some(tier.into());
        }
        self
    }

    /// What charging would say, without charging.
    ///
    /// # Errors
    ///
    /// When there is no such rule or tier, or the store fails.
    pub async fn peek(self) -> Result<Decision, LimiterError> {
        let planned = self.plan()?;
        Ok(self.limiter.store().peek(&self.charges(&planned)).await?)
    }

    /// The rule and quota of each charge; none for a tier without a limit.
    fn plan(&self) -> Result<Vec<Option<(usize, QuotaChoice)>>, LimiterError> {
        let plan = |wanted: &Wanted| {
            let number = self.limiter.find(&wanted.rule)?;
            let rule = self.limiter.rules().rule(number);
            let choice = match &wanted.tier {
                None => TierChoice::Default,
                Some(tier) if rule.has_tier(tier) => TierChoice::Named(tier.clone()),
                Some(tier) => {
                    let (rule, tier) = (wanted.rule.clone(), tier.to_string());
                    return Err(LimiterError::UnknownTier { rule, tier });
                }
            };
            Ok(rule.tier(choice).map(|quota| (number, quota)))
        };
        self.wanted.iter().map(plan).collect()
    }

    fn charges<'a>(&'a self, planned: &'a [Option<(usize, QuotaChoice)>]) -> Vec<Charge<'a>> {
        let limited = self.wanted.iter().zip(planned).filter_map(|(wanted, planned)| {
            let (number, quota) = planned.as_ref()?;
            let rule = self.limiter.rules().rule(*number);
            let cost = wanted.cost.unwrap_or_else(|| rule.fixed_cost());
            Some(Charge::new(rule.name, &wanted.key, rule.quota(quota)).cost(cost))
        });
        limited.collect()
    }
}

impl<S: Store> IntoFuture for ChargeBuilder<S> {
    type Output = Result<Decision, LimiterError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let planned = self.plan()?;
            let answer = self.limiter.store().charge(&self.charges(&planned));
            Ok(answer.await?)
        })
    }
}
