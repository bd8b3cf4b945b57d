//! Step 4: metrics and events about what was decided.

use ratekeeper_core::{Decision, Outcome, RuleName, StoreError};

use super::{Plan, Planned};
use crate::observe::Said;
use crate::rule::{Role, Rules};

/// How it was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// By the store, at once.
    AtOnce,
    /// By the store, after waiting.
    Waited,
    /// In this process, because the store failed.
    Locally,
}

impl How {
    /// At once, or locally after a failure.
    pub(crate) const fn after(failure: Option<&StoreError>) -> Self {
        match failure {
            None => Self::AtOnce,
            Some(_) => Self::Locally,
        }
    }
}

impl Plan {
    /// It was decided.
    #[inline]
    pub(crate) fn observe_decision(&self, rules: &Rules, decision: &Decision, how: How) {
        if cfg!(feature = "metrics") {
            self.count(rules, decision, how);
        }
        if cfg!(feature = "tracing") && !decision.is_admitted() {
            self.observe_denial(rules, decision);
        }
    }

    fn count(&self, rules: &Rules, decision: &Decision, how: How) {
        let is_admitted = decision.is_admitted();
        for (planned, outcome) in self.outcomes(rules, decision) {
            let said = match (how, outcome.is_admitted()) {
                (How::Locally, false) => Said::LocalDenied,
                (_, false) => Said::Denied,
                (_, true) if !is_admitted => Said::Uncharged,
                (How::Locally, true) => Said::LocalAdmitted,
                (How::Waited, true) => Said::Delayed,
                (How::AtOnce, true) if outcome.is_delayed() => Said::Delayed,
                (How::AtOnce, true) => Said::Admitted,
            };
            rules.rule(planned.rule).watch.count(Role::Enforced, said, Some(outcome));
        }
        if how == How::Locally {
            // The rules that do not decide locally let the request through, if these do.
            let said = if is_admitted { Said::AllowedByFailure } else { Said::Uncharged };
            for planned in &self.entries {
                let rule = rules.rule(planned.rule);
                if rule.local_quota(&planned.quota).is_none() {
                    rule.watch.count(Role::Enforced, said, None);
                }
            }
        }
    }

    /// Reports the tightest rule of a denial.
    fn observe_denial(&self, rules: &Rules, decision: &Decision) {
        let tightest = decision.tightest().map(|(name, _)| name);
        let is_tightest =
            |(planned, _): &(&Planned, &Outcome)| Some(rules.rule(planned.rule).name) == tightest;
        if let Some((planned, outcome)) = self.outcomes(rules, decision).find(is_tightest) {
            rules.rule(planned.rule).watch.tell_denied(Role::Enforced, decision.at(), outcome);
        }
    }

    /// The store failed, with this outcome. If a rule denies because of it, the others are not charged.
    #[cold]
    pub(crate) fn observe_failure(
        &self,
        rules: &Rules,
        error: &StoreError,
        said: Said,
        denied_by: Option<RuleName>,
    ) {
        let mut is_reported = false;
        for rule in self.entries.iter().map(|planned| rules.rule(planned.rule)) {
            let is_it = denied_by.is_none_or(|name| name == rule.name);
            rule.watch.count(Role::Enforced, if is_it { said } else { Said::Uncharged }, None);
            if is_it && !std::mem::replace(&mut is_reported, true) {
                rule.watch.tell_failed(error, said);
            }
        }
    }

    /// It had to wait, but too many wait already.
    #[cold]
    pub(crate) fn observe_overload(&self, rules: &Rules) {
        for (i, rule) in self.entries.iter().map(|planned| rules.rule(planned.rule)).enumerate() {
            rule.watch.count(Role::Enforced, Said::Overloaded, None);
            if i == 0 {
                rule.watch.tell_overloaded();
            }
        }
    }
}
