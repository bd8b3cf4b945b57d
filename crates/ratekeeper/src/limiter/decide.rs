//! Step 3: the store, or the rules' failure policies, decide about a plan.

use ratekeeper_core::{Answer, Charge, Decision, MemoryStore, RuleName, StoreError};
use smallvec::SmallVec;

use super::{Fallback, Limiter, Patience, Plan};
use crate::rule::Rules;

/// What was decided about a plan.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// A decision, by the store or, after this failure, in this process.
    Decided { decision: Decision, failure: Option<StoreError> },
    /// The store failed, and all rules allow the request.
    Allowed(StoreError),
    /// The store failed, and this rule denies.
    Unavailable { rule: RuleName, error: StoreError },
}

impl Limiter {
    /// Charges what was planned, all or nothing.
    #[inline]
    pub(crate) fn ask(&self, rules: &Rules, plan: &Plan, patience: Patience) -> Answer<Decision> {
        match &*plan.entries {
            [only] => self.store().charge(&[only.charge(rules, patience)]),
            entries => {
                let charges = entries.iter().map(|planned| planned.charge(rules, patience));
                self.store().charge(&charges.collect::<SmallVec<[Charge<'_>; 4]>>())
            }
        }
    }

    /// Applies the failure policies if the store has failed.
    #[inline]
    pub(crate) fn judge(
        &self,
        rules: &Rules,
        plan: &Plan,
        patience: Patience,
        answer: Result<Decision, StoreError>,
    ) -> Verdict {
        match answer {
            Ok(decision) => {
                self.debit_backlog();
                Verdict::Decided { decision, failure: None }
            }
            Err(error) => match self.fall_back(rules, plan, patience, MemoryStore::decide) {
                Fallback::Allow => Verdict::Allowed(error),
                Fallback::Deny(rule) => Verdict::Unavailable { rule, error },
                Fallback::Local(decision) => {
                    self.owe_admitted(rules, plan, &decision);
                    Verdict::Decided { decision, failure: Some(error) }
                }
            },
        }
    }
}
