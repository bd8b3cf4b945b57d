//! From a request to what is to be charged for it.

use std::future::Future;
use std::pin::Pin;

use smallvec::SmallVec;
use tollgate_core::{Key, RuleName, Store};

use super::Limiter;
use crate::RequestHead;
use crate::key::Extracted;
use crate::rule::{Compiled, MissingKey, QuotaChoice, TierChoice, TierFuture, TierLookup};

/// What is to be charged for a request.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    entries: SmallVec<[Planned; 2]>,
    /// A rule that denies because the request has not got its key.
    refused_by: Option<RuleName>,
}

/// One charge of a plan.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) rule: usize,
    pub(crate) quota: QuotaChoice,
    pub(crate) cost: u32,
    pub(crate) key: Key,
}

/// A plan, or one that waits for lookups.
pub(crate) enum Planning {
    Now(Plan),
    Later(Pin<Box<dyn Future<Output = Plan> + Send>>),
}

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
    /// What is to be charged for a request.
    #[inline]
    pub(crate) fn plan(&self, head: &RequestHead<'_>) -> Planning {
        let mut plan = Plan::default();
        let matches = self.rules().matches(head);
        for (i, (number, pattern)) in matches.iter().enumerate() {
            let rule = self.rules().rule(*number);
            let head = head.with_pattern(*pattern);
            if !rule.applies(&head) {
                continue;
            }
            let pending = Pending::new(*number, rule, &head);
            match (pending.key, pending.tier) {
                (Extracted::Key(key), PendingTier::Now(tier)) => {
                    plan.add(*number, rule, Some(key), tier, pending.cost);
                }
                (Extracted::Missing, PendingTier::Now(tier)) => {
                    plan.add(*number, rule, None, tier, pending.cost);
                }
                (key, tier) => {
                    let first = Pending { rule: *number, cost: pending.cost, key, tier };
                    let rest = matches[i + 1..].iter().filter_map(|(number, pattern)| {
                        let (rule, head) = (self.rules().rule(*number), head.with_pattern(*pattern));
                        rule.applies(&head).then(|| Pending::new(*number, rule, &head))
                    });
                    let pending = std::iter::once(first).chain(rest).collect();
                    return Planning::Later(Box::pin(self.clone().look_up(plan, pending)));
                }
            }
        }
        Planning::Now(plan)
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

impl Pending {
    #[inline]
    fn new(number: usize, rule: &Compiled, head: &RequestHead<'_>) -> Self {
        Self {
            rule: number,
            cost: rule.cost(head),
            key: rule.key.extract(head),
            tier: match &rule.tier_lookup {
                None => PendingTier::Now(TierChoice::Default),
                Some(TierLookup::Now(lookup)) => PendingTier::Now(lookup(head)),
                Some(TierLookup::Later(lookup)) => PendingTier::Later(lookup(head)),
            },
        }
    }
}
