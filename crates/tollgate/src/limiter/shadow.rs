//! Charging what is only charged to be seen.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Handle;
use tollgate_core::{Answer, Decision, Store, StoreError};

use super::{Limiter, Plan, Planned};
use crate::rule::{Role, Rules};
use crate::settle::Account;

/// What rules in shadow have said that header fields are to tell of.
#[derive(Debug)]
pub(crate) struct ShadowReport {
    rules: Arc<Rules>,
    said: Mutex<Vec<(Planned, Decision)>>,
}

impl ShadowReport {
    /// For a plan's rules in shadow, if there are some that are shown.
    pub(crate) fn of(plan: &Plan) -> Option<Arc<Self>> {
        let rules = plan.rules();
        let is_shown = |planned: &Planned| is_shown(rules, planned);
        plan.shadows()
            .iter()
            .any(is_shown)
            .then(|| Arc::new(Self { rules: Arc::clone(rules), said: Mutex::default() }))
    }

    /// What has been said, with the rules that have said it.
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

/// The charges of a request that are made to be seen, when it goes on.
pub(crate) type Shadowing = Box<dyn FnOnce() + Send + Sync>;

/// One charge that is made to be seen, and who wants to know what came of it.
struct Shadow<S: Store> {
    rules: Arc<Rules>,
    planned: Planned,
    account: Option<Arc<Account<S>>>,
    report: Option<Arc<ShadowReport>>,
}

impl<S: Store> Shadow<S> {
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

impl<S: Store> Limiter<S> {
    /// Makes the charges of an admitted plan that are only made to be seen, each by itself. Nobody waits for them.
    #[inline]
    pub(crate) fn shadow(
        &self,
        plan: &Plan,
        account: Option<&Arc<Account<S>>>,
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
        account: Option<Arc<Account<S>>>,
        report: Option<Arc<ShadowReport>>,
    ) {
        let shadow = Shadow { rules: Arc::clone(rules), planned: planned.clone(), account, report };
        match self.store().charge(&[rules.charge_of(planned)]) {
            Answer::Now(answer) => shadow.said(&answer),
            // A store that takes a while has a runtime that it does so in.
            Answer::Later(charging) => {
                if let Ok(runtime) = Handle::try_current() {
                    runtime.spawn(async move { shadow.said(&charging.await) });
                }
            }
        }
    }
}
