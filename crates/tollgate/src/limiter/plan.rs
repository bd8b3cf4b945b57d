//! From a request to what is to be charged for it.

use std::future::Future;
use std::pin::Pin;

use smallvec::SmallVec;
use tollgate_core::{Key, RuleName, Store};

use super::Limiter;
use crate::RequestHead;
use crate::key::Extracted;
use crate::rule::{Compiled, Matching, MissingKey, QuotaChoice, TierChoice, TierFuture, TierLookup};

/// What is to be charged for a request.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    entries: SmallVec<[Planned; 2]>,
    /// A rule that denies because the request has not got its key.
    refused_by: Option<RuleName>,
}

/// One charge of a plan.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) rule: usize,
    pub(crate) quota: QuotaChoice,
    pub(crate) cost: u32,
    pub(crate) key: Key,
}

/// A plan that waits for lookups.
pub(crate) type Planning = Pin<Box<dyn Future<Output = Plan> + Send>>;

/// A charge whose key or tier is being looked up.
struct Pending {
    rule: usize,
    cost: u32,
    key: Extracted,
    tier: PendingTier,
}

enum PendingTier {
    Now(TierChoice),
    Later(TierFuture),
}

impl Plan {
    /// One charge, under the rule's own quota.
    pub(crate) fn one(rule: usize, key: Key, cost: u32) -> Self {
        let mut plan = Self::default();
        plan.push(rule, key, cost);
        plan
    }

    /// These charges.
    pub(crate) fn of(entries: SmallVec<[Planned; 2]>) -> Self {
        Self { entries, refused_by: None }
    }

    #[inline]
    fn push(&mut self, rule: usize, key: Key, cost: u32) {
        self.entries.push(Planned { rule, quota: QuotaChoice::Own(0), cost, key });
    }

    #[inline]
    pub(crate) fn entries(&self) -> &[Planned] {
        &self.entries
    }

    pub(crate) const fn refused_by(&self) -> Option<RuleName> {
        self.refused_by
    }

    /// Whether no rule has anything to say.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.refused_by.is_none()
    }

    #[inline(always)]
    fn add(&mut self, number: usize, rule: &Compiled, key: Option<Key>, tier: TierChoice, cost: u32) {
        let key = match (key, rule.missing_key) {
            (Some(key), _) => key,
            (None, MissingKey::Shared) => Key::GLOBAL,
            (None, MissingKey::Skip) => return,
            (None, MissingKey::Deny) => {
                self.refused_by.get_or_insert(rule.name);
                return;
            }
        };
        if let Some(quota) = rule.tier(tier) {
            self.entries.push(Planned { rule: number, quota, cost, key });
        }
    }
}

impl<S: Store> Limiter<S> {
    /// What is to be charged for a request under these rules; if something has to be looked up for that, what
    /// is left to do.
    #[inline(never)]
    pub(crate) fn plan(&self, head: &RequestHead<'_>, matching: Matching<'_>) -> Result<Plan, Planning> {
        let rules = self.rules();
        let (mut plan, mut pending) = Default::default();
        rules.for_each(matching, head, |number, head| {
            let key = rules.rule(number).key.extract(head.extensions(), || *head);
            self.plan_rule(number, head, key, &mut plan, &mut pending);
        });
        self.planned(plan, pending)
    }

    /// The same for one rule that has been asked for its key.
    #[cold]
    pub(crate) fn plan_one(
        &self,
        head: &RequestHead<'_>,
        rule: usize,
        key: Extracted,
    ) -> Result<Plan, Planning> {
        let (mut plan, mut pending) = Default::default();
        self.plan_rule(rule, head, key, &mut plan, &mut pending);
        self.planned(plan, pending)
    }

    #[inline(always)]
    fn plan_rule(
        &self,
        number: usize,
        head: &RequestHead<'_>,
        key: Extracted,
        plan: &mut Plan,
        pending: &mut Vec<Pending>,
    ) {
        let rule = self.rules().rule(number);
        let cost = rule.cost(|| *head);
        // What is known is planned at once, unless it has to wait for what came before it: the charges
        // are in the order of the rules.
        let (key, tier) = match (&rule.tier_lookup, key) {
            (None, Extracted::Key(key)) if pending.is_empty() => return plan.push(number, key, cost),
            (None, key) => (key, PendingTier::Now(TierChoice::Default)),
            (Some(TierLookup::Now(lookup)), key) => (key, PendingTier::Now(lookup(head))),
            (Some(TierLookup::Later(lookup)), key) => (key, PendingTier::Later(lookup(head))),
        };
        match (key, tier) {
            (Extracted::Key(key), PendingTier::Now(tier)) if pending.is_empty() => {
                plan.add(number, rule, Some(key), tier, cost);
            }
            (Extracted::Missing, PendingTier::Now(tier)) if pending.is_empty() => {
                plan.add(number, rule, None, tier, cost);
            }
            (key, tier) => pending.push(Pending { rule: number, cost, key, tier }),
        }
    }

    #[inline(always)]
    fn planned(&self, plan: Plan, pending: Vec<Pending>) -> Result<Plan, Planning> {
        if pending.is_empty() { Ok(plan) } else { Err(Box::pin(self.clone().look_up(plan, pending))) }
    }

    async fn look_up(self, mut plan: Plan, pending: Vec<Pending>) -> Plan {
        for Pending { rule: number, cost, key, tier } in pending {
            let key = key.wait().await;
            let tier = match tier {
                PendingTier::Now(tier) => tier,
                PendingTier::Later(tier) => tier.await,
            };
            plan.add(number, self.rules().rule(number), key, tier, cost);
        }
        plan
    }
}
