//! From a request to what is to be charged for it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use ratekeeper_core::{Charge, Key};
use smallvec::SmallVec;

use crate::RequestHead;
use crate::key::Extracted;
use crate::rule::{Matching, MissingKey, QuotaChoice, Role, Rules, TierChoice, TierFuture, TierLookup};

/// What is to be charged for a request.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The rules that were in force when the request arrived. Everything that follows uses these.
    rules: Arc<Rules>,
    entries: SmallVec<[Planned; 2]>,
    /// The charges made only in shadow.
    shadows: Vec<Planned>,
    /// Set if a rule denies because the request does not have its key. Boxed, because few plans have it.
    refused: Option<Box<Refused>>,
}

/// One charge of a plan.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) rule: usize,
    pub(crate) quota: QuotaChoice,
    pub(crate) cost: u32,
    pub(crate) key: Key,
    pub(crate) role: Role,
}

impl Planned {
    /// Whether it is a copy of the same charge.
    pub(crate) fn is_for(&self, other: &Self) -> bool {
        (self.rule, self.role, &self.key) == (other.rule, other.role, &other.key)
    }
}

/// A rule that denies because the request does not have its key, and the quota that the caller would have.
#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) rule: usize,
    pub(crate) quota: QuotaChoice,
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
    pub(crate) fn one(rules: Arc<Rules>, rule: usize, key: Key, cost: u32) -> Self {
        let mut plan = Self::new(rules);
        plan.push(Planned { rule, quota: QuotaChoice::Own(0), cost, key, role: Role::Enforced });
        plan
    }

    /// An empty plan.
    pub(crate) const fn new(rules: Arc<Rules>) -> Self {
        Self { rules, entries: SmallVec::new_const(), shadows: Vec::new(), refused: None }
    }

    /// The rules that it was made under.
    #[inline]
    pub(crate) fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }

    pub(crate) fn charges(&self) -> SmallVec<[Charge<'_>; 4]> {
        self.entries.iter().map(|planned| self.rules.charge_of(planned)).collect()
    }

    #[inline]
    fn push(&mut self, planned: Planned) {
        let rule = self.rules.rule(planned.rule);
        rule.watch.matched();
        if rule.has_candidate(&planned.quota) {
            self.shadows.push(Planned { role: Role::Candidate, ..planned.clone() });
        }
        match planned.role {
            Role::Enforced => self.entries.push(planned),
            Role::Shadow | Role::Candidate => self.shadows.push(planned),
        }
    }

    #[inline]
    pub(crate) fn entries(&self) -> &[Planned] {
        &self.entries
    }

    /// The charges made only in shadow.
    #[inline]
    pub(crate) fn shadows(&self) -> &[Planned] {
        &self.shadows
    }

    /// The same plan, with rules in shadow enforced. Candidates are dropped.
    pub(crate) fn enforced(mut self) -> Self {
        for planned in std::mem::take(&mut self.shadows) {
            if planned.role == Role::Shadow {
                self.entries.push(Planned { role: Role::Enforced, ..planned });
            }
        }
        self
    }

    /// The rule that denies for a missing key, if any.
    pub(crate) fn refused(&self) -> Option<&Refused> {
        self.refused.as_deref()
    }

    /// Whether there is nothing to charge and nothing denied.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.shadows.is_empty() && self.refused.is_none()
    }

    #[inline(always)]
    pub(super) fn add(&mut self, number: usize, key: Option<Key>, tier: TierChoice, cost: u32) {
        let rule = self.rules.rule(number);
        // Callers without a limit need no key.
        let Some(quota) = rule.tier(tier) else { return };
        let key = match (key, rule.missing_key) {
            (Some(key), _) => key,
            (None, MissingKey::Shared) => Key::GLOBAL,
            (None, MissingKey::Skip) => return,
            // Requests without a key belong to one share, as they do where they are counted.
            (None, MissingKey::Deny) if rule.role(&Key::GLOBAL) != Role::Enforced => {
                rule.watch.missing_key(Role::Shadow);
                return;
            }
            (None, MissingKey::Deny) => {
                self.refused.get_or_insert_with(|| Box::new(Refused { rule: number, quota }));
                return;
            }
        };
        let role = rule.role(&key);
        self.push(Planned { rule: number, quota, cost, key, role });
    }
}

/// Finds out what to charge for a request or, if something has to be looked up, what is left to do.
pub(crate) struct Planner<'a> {
    rules: &'a Arc<Rules>,
    plan: Plan,
    pending: Vec<Pending>,
}

impl<'a> Planner<'a> {
    #[inline(always)]
    fn new(rules: &'a Arc<Rules>) -> Self {
        Self { rules, plan: Plan::new(Arc::clone(rules)), pending: Vec::new() }
    }

    /// Plans for all the rules that match and apply.
    #[inline(never)]
    pub(crate) fn all(
        rules: &'a Arc<Rules>,
        head: &RequestHead<'_>,
        matching: Matching<'_>,
    ) -> Result<Plan, Planning> {
        let mut planner = Self::new(rules);
        rules.for_each(matching, head, |number, head| {
            let key = rules.rule(number).key.extract(head.extensions(), || *head);
            planner.add(number, head, key);
        });
        planner.done()
    }

    /// Plans for one rule whose key has been extracted.
    #[cold]
    pub(crate) fn one(
        rules: &'a Arc<Rules>,
        head: &RequestHead<'_>,
        rule: usize,
        key: Extracted,
    ) -> Result<Plan, Planning> {
        let mut planner = Self::new(rules);
        planner.add(rule, head, key);
        planner.done()
    }

    #[inline(always)]
    fn add(&mut self, number: usize, head: &RequestHead<'_>, key: Extracted) {
        let Self { rules, plan, pending } = self;
        let rule = rules.rule(number);
        let cost = rule.cost(|| *head);
        if matches!(key, Extracted::Missing) && rule.key.is_peer() {
            rules.watch.no_peer(rule.name);
        }
        // A charge that is known is planned immediately, unless an earlier one is pending: the charges are in
        // the order of the rules.
        let (key, tier) = match (&rule.tier_lookup, key) {
            (None, Extracted::Key(key)) if pending.is_empty() => {
                let role = rule.role(&key);
                return plan.push(Planned { rule: number, quota: QuotaChoice::Own(0), cost, key, role });
            }
            (None, key) => (key, PendingTier::Now(TierChoice::Default)),
            (Some(TierLookup::Now(lookup)), key) => (key, PendingTier::Now(lookup(head))),
            (Some(TierLookup::Later(lookup)), key) => (key, PendingTier::Later(lookup(head))),
        };
        match (key, tier) {
            (Extracted::Key(key), PendingTier::Now(tier)) if pending.is_empty() => {
                plan.add(number, Some(key), tier, cost);
            }
            (Extracted::Missing, PendingTier::Now(tier)) if pending.is_empty() => {
                plan.add(number, None, tier, cost);
            }
            (key, tier) => pending.push(Pending { rule: number, cost, key, tier }),
        }
    }

    #[inline(always)]
    fn done(self) -> Result<Plan, Planning> {
        let Self { plan, pending, .. } = self;
        if pending.is_empty() { Ok(plan) } else { Err(Box::pin(look_up(plan, pending))) }
    }
}

async fn look_up(mut plan: Plan, pending: Vec<Pending>) -> Plan {
    for Pending { rule: number, cost, key, tier } in pending {
        let key = key.wait().await;
        let tier = match tier {
            PendingTier::Now(tier) => tier,
            PendingTier::Later(tier) => tier.await,
        };
        plan.add(number, key, tier, cost);
    }
    plan
}
