//! Steps 1 and 2: the rules that match a request, and what each of them charges for it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{Charge, Decision, Key, Outcome};
use smallvec::SmallVec;

use super::Limiter;
use crate::key::Extracted;
use crate::request::RequestHead;
use crate::rule::{MissingKey, QuotaChoice, Role, Rules, TierChoice, TierFuture, TierLookup};

/// What is to be charged for a request, under the rules that were in force when it arrived.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) entries: SmallVec<[Planned; 3]>,
    /// The charges made only in shadow.
    pub(crate) shadows: Vec<Planned>,
    /// The charge of a rule that denies, because the request does not have its key.
    pub(crate) missing_key: Option<Box<Planned>>,
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

/// A plan that waits for the lookup of keys or tiers.
pub(crate) type Planning = Pin<Box<dyn Future<Output = Plan> + Send>>;

impl Planned {
    /// Whether it is a copy of the same charge.
    pub(crate) fn is_for(&self, other: &Self) -> bool {
        (self.rule, self.role, &self.key) == (other.rule, other.role, &other.key)
    }

    /// The charge that the store is asked for.
    #[inline]
    pub(crate) fn charge<'a>(&'a self, rules: &'a Rules, patience: Patience) -> Charge<'a> {
        let rule = rules.rule(self.rule);
        let (name, quota) = match self.role {
            Role::Candidate => rule.candidate(&self.quota),
            Role::Enforced | Role::Shadow => (rule.name, rule.quota(&self.quota)),
        };
        let charge = Charge::new(name, &self.key, quota).cost(self.cost);
        match patience {
            Patience::None => charge,
            Patience::OfRules => rule.hold(&self.quota).map_or(charge, |up_to| charge.wait_up_to(up_to)),
            Patience::UpTo(up_to) => charge.wait_up_to(up_to),
        }
    }
}

/// How long a caller waits for the buckets that it charges.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// Not at all.
    None,
    /// As long as each rule holds a request back.
    OfRules,
    /// This long, whatever the rules say.
    UpTo(Duration),
}

impl Plan {
    /// Whether there is nothing to charge, and no reason to deny.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.shadows.is_empty() && self.missing_key.is_none()
    }

    /// The outcome of each charge. A decision made in this process has no outcome for some.
    pub(crate) fn outcomes<'a>(
        &'a self,
        rules: &'a Rules,
        decision: &'a Decision,
    ) -> impl Iterator<Item = (&'a Planned, &'a Outcome)> {
        let mut outcomes = decision.outcomes().peekable();
        self.entries.iter().filter_map(move |planned| {
            let name = rules.rule(planned.rule).name;
            outcomes.next_if(|(rule, _)| *rule == name).map(|(_, outcome)| (planned, outcome))
        })
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

    /// Adds the charge of a rule, for a caller with this key and in this tier.
    #[inline]
    pub(crate) fn add(
        &mut self,
        rules: &Rules,
        number: usize,
        key: Option<Key>,
        tier: TierChoice,
        cost: u32,
    ) {
        let rule = rules.rule(number);
        // Callers without a limit need no key.
        let Some(quota) = rule.tier(tier) else { return };
        let key = match (key, rule.missing_key) {
            (Some(key), _) => key,
            (None, MissingKey::Shared) => Key::GLOBAL,
            (None, MissingKey::Skip) => return,
            (None, MissingKey::Deny) => {
                // Requests without a key belong to one share, as they do where they are counted.
                let role = rule.role(&Key::GLOBAL);
                match role {
                    Role::Enforced => {
                        let planned = Planned { rule: number, quota, cost, key: Key::GLOBAL, role };
                        self.missing_key.get_or_insert_with(|| Box::new(planned));
                    }
                    Role::Shadow | Role::Candidate => rule.watch.missing_key(Role::Shadow),
                }
                return;
            }
        };
        rule.watch.matched();
        let planned = Planned { rule: number, quota, cost, key, role: rule.role(&key) };
        if rule.has_candidate(&planned.quota) {
            self.shadows.push(Planned { role: Role::Candidate, ..planned.clone() });
        }
        match planned.role {
            Role::Enforced => self.entries.push(planned),
            Role::Shadow | Role::Candidate => self.shadows.push(planned),
        }
    }
}

/// A charge whose key or tier may have to be looked up.
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

impl Limiter {
    /// Finds out what to charge for a request. If something has to be looked up, the plan is taken along, and
    /// a future of it is returned.
    pub(crate) fn plan(
        &self,
        rules: &Arc<Rules>,
        head: &RequestHead<'_>,
        plan: &mut Plan,
    ) -> Option<Planning> {
        let mut pending = Vec::new();
        rules.for_each_match(head, |number, head| {
            let rule = rules.rule(number);
            let key = rule.key.extract(head.extensions(), || *head);
            if matches!(key, Extracted::Missing) && rule.key.is_peer() {
                self.hint_no_peer(rule.name);
            }
            let cost = rule.cost(|| *head);
            let tier = match &rule.tier_lookup {
                None => PendingTier::Now(TierChoice::Default),
                Some(TierLookup::Now(lookup)) => PendingTier::Now(lookup(head)),
                Some(TierLookup::Later(lookup)) => PendingTier::Later(lookup(head)),
            };
            // The charges are in the order of the rules, so all that follow a lookup wait for it.
            match (key, tier) {
                (Extracted::Key(key), PendingTier::Now(tier)) if pending.is_empty() => {
                    plan.add(rules, number, Some(key), tier, cost);
                }
                (Extracted::Missing, PendingTier::Now(tier)) if pending.is_empty() => {
                    plan.add(rules, number, None, tier, cost);
                }
                (key, tier) => pending.push(Pending { rule: number, cost, key, tier }),
            }
        });
        if pending.is_empty() {
            return None;
        }
        Some(Box::pin(look_up(Arc::clone(rules), std::mem::take(plan), pending)))
    }
}

async fn look_up(rules: Arc<Rules>, mut plan: Plan, pending: Vec<Pending>) -> Plan {
    for Pending { rule, cost, key, tier } in pending {
        let key = key.wait().await;
        let tier = match tier {
            PendingTier::Now(tier) => tier,
            PendingTier::Later(tier) => tier.await,
        };
        plan.add(&rules, rule, key, tier, cost);
    }
    plan
}
