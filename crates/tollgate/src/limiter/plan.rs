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
    /// What is to be charged for a request. If something has to be looked up for that, returns what is left
    /// to do.
    #[inline(always)]
    pub(crate) fn plan(&self, head: &RequestHead<'_>, plan: &mut Plan) -> Option<Planning> {
        let rules = self.rules();
        let mut pending = Vec::new();
        rules.for_each_match(head, |number, head| {
            let rule = rules.rule(number);
            let key = rule.key.extract(head);
            let cost = rule.cost(head);
            // What is known is planned at once, unless it has to wait for what came before it: the charges
            // are in the order of the rules.
            let tier = match (&rule.tier_lookup, key) {
                (None, Extracted::Key(key)) if pending.is_empty() => {
                    return plan.entries.push(Planned {
                        rule: number,
                        quota: QuotaChoice::Own(0),
                        cost,
                        key,
                    });
                }
                (None, key) => (key, PendingTier::Now(TierChoice::Default)),
                (Some(TierLookup::Now(lookup)), key) => (key, PendingTier::Now(lookup(head))),
                (Some(TierLookup::Later(lookup)), key) => (key, PendingTier::Later(lookup(head))),
            };
            match tier {
                (Extracted::Key(key), PendingTier::Now(tier)) if pending.is_empty() => {
                    plan.add(number, rule, Some(key), tier, cost);
                }
                (Extracted::Missing, PendingTier::Now(tier)) if pending.is_empty() => {
                    plan.add(number, rule, None, tier, cost);
                }
                (key, tier) => pending.push(Pending { rule: number, cost, key, tier }),
            }
        });
        if pending.is_empty() {
            return None;
        }
        Some(Box::pin(self.clone().look_up(std::mem::take(plan), pending)))
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
