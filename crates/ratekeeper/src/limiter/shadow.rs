//! The charges of rules in shadow and of candidates, made when a request is forwarded.

use std::sync::{Arc, Mutex, PoisonError};

use ratekeeper_core::{Answer, Decision, Store, StoreError};
use tokio::runtime::Handle;

use super::settle::Account;
use super::{Limiter, Patience, Plan, Planned};
use crate::rule::{Role, Rules};

/// The decisions of rules in shadow that header fields are to report.
#[derive(Debug)]
pub(crate) struct ShadowReport {
    rules: Arc<Rules>,
    decisions: Mutex<Vec<(Planned, Decision)>>,
}

impl ShadowReport {
    /// A report for a plan's rules in shadow, if any of them are shown.
    pub(crate) fn of(rules: &Arc<Rules>, plan: &Plan) -> Option<Arc<Self>> {
        let mut shadows = plan.shadows.iter();
        shadows
            .any(|planned| is_shown(rules, planned))
            .then(|| Arc::new(Self { rules: Arc::clone(rules), decisions: Mutex::default() }))
    }

    /// Calls `f` with each decision so far, and the rules and the charge that it belongs to.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&Rules, &Planned, &Decision)) {
        for (planned, decision) in &*self.decisions.lock().unwrap_or_else(PoisonError::into_inner) {
            f(&self.rules, planned, decision);
        }
    }

    fn add(&self, planned: &Planned, decision: &Decision) {
        if is_shown(&self.rules, planned) {
            let mut decisions = self.decisions.lock().unwrap_or_else(PoisonError::into_inner);
            decisions.push((planned.clone(), decision.clone()));
        }
    }
}

fn is_shown(rules: &Rules, planned: &Planned) -> bool {
    planned.role == Role::Shadow && rules.rule(planned.rule).shows_shadow
}

/// One shadow charge, and where to record its result.
struct Shadow {
    rules: Arc<Rules>,
    planned: Planned,
    account: Option<Arc<Account>>,
    report: Option<Arc<ShadowReport>>,
}

impl Shadow {
    fn record(&self, answer: &Result<Decision, StoreError>) {
        self.rules.rule(self.planned.rule).watch.shadowed(self.planned.role, answer);
        if let Some(account) = &self.account {
            account.shadowed(&self.planned, answer.as_ref().ok());
        }
        if let (Some(report), Ok(decision)) = (&self.report, answer) {
            report.add(&self.planned, decision);
        }
    }
}

impl Limiter {
    /// Makes the shadow charges of an admitted plan, each by itself. Nothing waits for them.
    pub(crate) fn shadow(
        &self,
        rules: &Arc<Rules>,
        plan: &Plan,
        account: Option<&Arc<Account>>,
        report: Option<&Arc<ShadowReport>>,
    ) {
        for planned in &plan.shadows {
            let (account, report) = (account.cloned(), report.cloned());
            let shadow = Shadow { rules: Arc::clone(rules), planned: planned.clone(), account, report };
            match self.store().charge(&[planned.charge(rules, Patience::None)]) {
                Answer::Now(answer) => shadow.record(&answer),
                // A store that does not answer immediately has a runtime that it runs in.
                Answer::Later(answer) => {
                    if let Ok(runtime) = Handle::try_current() {
                        runtime.spawn(async move { shadow.record(&answer.await) });
                    }
                }
            }
        }
    }
}
