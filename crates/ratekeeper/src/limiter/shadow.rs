//! Making the charges of rules in shadow and of candidates.

use std::sync::{Arc, Mutex, PoisonError};

use ratekeeper_core::{Answer, Decision, Store, StoreError};
use tokio::runtime::Handle;

use super::{Limiter, Plan, Planned};
use crate::rule::{Role, Rules};
use crate::settle::Account;

/// The decisions of rules in shadow that header fields are to report.
#[derive(Debug)]
pub(crate) struct ShadowReport {
    rules: Arc<Rules>,
    said: Mutex<Vec<(Planned, Decision)>>,
}

impl ShadowReport {
    /// A report for a plan's rules in shadow, if any of them are shown.
    pub(crate) fn of(plan: &Plan) -> Option<Arc<Self>> {
        let rules = plan.rules();
        let is_shown = |planned: &Planned| is_shown(rules, planned);
        plan.shadows()
            .iter()
            .any(is_shown)
            .then(|| Arc::new(Self { rules: Arc::clone(rules), said: Mutex::default() }))
    }

    /// Calls `f` with each decision so far, and the rules and the charge that it belongs to.
    pub(crate) fn said(&self, mut f: impl FnMut(&Rules, &Planned, &Decision)) {
        for (planned, decision) in &*self.said.lock().unwrap_or_else(PoisonError::into_inner) {
            f(&self.rules, planned, decision);
        }
    }

    fn say(&self, planned: &Planned, decision: &Decision) {
        if is_shown(&self.rules, planned) {
            let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            said.push((planned.clone(), decision.clone()));
        }
    }
}

fn is_shown(rules: &Rules, planned: &Planned) -> bool {
    planned.role == Role::Shadow && rules.rule(planned.rule).shows_shadow
}

/// Makes the shadow charges of a request, when it is forwarded.
pub(crate) type Shadowing = Box<dyn FnOnce() + Send + Sync>;

/// One shadow charge, and where to record its result.
struct Shadow {
    rules: Arc<Rules>,
    planned: Planned,
    account: Option<Arc<Account>>,
    report: Option<Arc<ShadowReport>>,
}

impl Shadow {
    fn said(&self, answer: &Result<Decision, StoreError>) {
        self.rules.rule(self.planned.rule).watch.shadowed(self.planned.role, answer);
        if let Some(account) = &self.account {
            account.shadowed(&self.planned, answer.as_ref().ok());
        }
        if let (Some(report), Ok(decision)) = (&self.report, answer) {
            report.say(&self.planned, decision);
        }
    }
}

impl Limiter {
    /// Makes the shadow charges of an admitted plan, each by itself. Nothing waits for them.
    #[inline]
    pub(crate) fn shadow(
        &self,
        plan: &Plan,
        account: Option<&Arc<Account>>,
        report: Option<&Arc<ShadowReport>>,
    ) {
        for planned in plan.shadows() {
            self.shadow_one(plan.rules(), planned, account.cloned(), report.cloned());
        }
    }

    /// The same without a request, if the plan was admitted.
    pub(crate) fn shadow_admitted(&self, plan: &Plan, decision: &Decision) {
        if decision.is_admitted() {
            self.shadow(plan, None, None);
        }
    }

    fn shadow_one(
        &self,
        rules: &Arc<Rules>,
        planned: &Planned,
        account: Option<Arc<Account>>,
        report: Option<Arc<ShadowReport>>,
    ) {
        let shadow = Shadow { rules: Arc::clone(rules), planned: planned.clone(), account, report };
        match self.store().charge(&[rules.charge_of(planned)]) {
            Answer::Now(answer) => shadow.said(&answer),
            // A store that does not answer immediately has a runtime that it runs in.
            Answer::Later(charging) => {
                if let Ok(runtime) = Handle::try_current() {
                    runtime.spawn(async move { shadow.said(&charging.await) });
                }
            }
        }
    }
}
