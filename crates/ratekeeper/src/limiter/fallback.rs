//! Step 3, when the store fails: what the rules' failure policies make of a request.

use ratekeeper_core::{Charge, Decision, MemoryStore, Quota, RuleName};
use smallvec::SmallVec;

use super::{Limiter, Patience, Plan, Planned};
use crate::rule::{FailurePolicy, Rules};

/// The result of the rules' failure policies.
#[derive(Debug)]
pub(crate) enum Fallback {
    /// All rules allow the request.
    Allow,
    /// This rule denies.
    Deny(RuleName),
    /// The rules that decide locally have decided.
    Local(Decision),
}

impl Limiter {
    /// Applies the failure policies of the planned rules. `decide` charges the in-process store, or peeks.
    #[cold]
    pub(crate) fn fall_back(
        &self,
        rules: &Rules,
        plan: &Plan,
        patience: Patience,
        decide: impl FnOnce(&MemoryStore, &[Charge<'_>]) -> Decision,
    ) -> Fallback {
        // All rules are checked before anything is charged.
        let mut shares: SmallVec<[(&Planned, Quota); 2]> = SmallVec::new();
        for planned in &plan.entries {
            let rule = rules.rule(planned.rule);
            match (rule.failure, rule.local_quota(&planned.quota)) {
                (FailurePolicy::Deny, _) => return Fallback::Deny(rule.name),
                (_, Some(share)) => {
                    let whole = rule.quota(&planned.quota);
                    if share.max() < planned.cost && planned.cost <= whole.max() {
                        return Fallback::Deny(rule.name);
                    }
                    shares.push((planned, share));
                }
                (_, None) => {}
            }
        }
        match self.local_store() {
            Some(store) if !shares.is_empty() => {
                let charges = shares.iter().map(|(planned, share)| {
                    let mut charge = planned.charge(rules, patience);
                    charge.quota = share;
                    charge
                });
                Fallback::Local(decide(store, &charges.collect::<SmallVec<[Charge<'_>; 4]>>()))
            }
            _ => Fallback::Allow,
        }
    }
}
