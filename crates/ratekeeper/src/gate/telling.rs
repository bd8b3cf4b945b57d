//! What is reported of a decision: to the handler immediately, and by the response later.

use std::sync::Arc;

use http::{HeaderValue, Request};
use ratekeeper_core::{Decision, Outcome, Timestamp};

use super::{Gate, policies};
use crate::headers::{Lines, Trio};
use crate::limiter::{Plan, ShadowReport, Shadowing};
use crate::rule::{Compiled, QuotaChoice};
use crate::settle::Account;
use crate::told::{More, One, Shown, Told, expose};

impl<R> Gate<R> {
    /// What the response to an admitted request will report.
    #[inline]
    pub(super) fn tell(
        &self,
        decision: &Decision,
        policies: impl Iterator<Item = HeaderValue>,
        account: Option<Arc<Account>>,
    ) -> Told {
        let shown = self.shown();
        if shown.exposed || self.options.fields.ietf.is_some() || account.is_some() {
            let (lines, settling) =
                (self.options.fields.lines(decision, policies), account.map(|account| account as _));
            return Told::more(More { decision: decision.clone(), shown, lines, settling, shadows: None });
        }
        match decision.tightest() {
            Some((rule, outcome)) => {
                Told::One(One { rule, trio: Trio { at: decision.at(), outcome: *outcome }, shown })
            }
            None => Told::Nothing,
        }
    }

    /// The same for a request that also has rules in shadow. They are asked now or, if the request is held
    /// back, when it is forwarded, because it may go away before.
    #[cold]
    pub(super) fn tell_and_shadow(
        &self,
        decision: &Decision,
        plan: &Plan,
        account: Option<Arc<Account>>,
    ) -> (Told, Option<Shadowing>) {
        let report = ShadowReport::of(plan);
        let shadowing: Option<Shadowing> = if decision.is_delayed() {
            let (limiter, plan) = (self.limiter.clone(), plan.clone());
            let (account, report) = (account.clone(), report.clone());
            Some(Box::new(move || limiter.shadow(&plan, account.as_ref(), report.as_ref())))
        } else {
            self.limiter.shadow(plan, account.as_ref(), report.as_ref());
            None
        };
        let Some(report) = report else { return (self.tell(decision, policies(plan), account), shadowing) };
        let lines = self.options.fields.lines(decision, policies(plan));
        let (settling, shadows) = (account.map(|account| account as _), Some((self.options.fields, report)));
        let more = More { decision: decision.clone(), shown: self.shown(), lines, settling, shadows };
        (Told::more(more), shadowing)
    }

    /// Handles a request for which there are only rules in shadow.
    #[cold]
    pub(crate) fn shadow_alone<A>(&self, request: &mut Request<A>, plan: &Plan) -> Told {
        let account = self.settle(request, plan.rules(), |limiter| Account::shadow(limiter, plan));
        self.mark_uncounted(request, account.is_some());
        let report = ShadowReport::of(plan);
        self.limiter.shadow(plan, account.as_ref(), report.as_ref());
        if account.is_none() && report.is_none() {
            return Told::Nothing;
        }
        // Nothing was decided, so there is nothing to expose.
        let shown = Shown { legacy: self.options.fields.legacy, exposed: false };
        let (decision, lines) = (Decision::new(Timestamp::UNIX_EPOCH), Lines::default());
        let settling = account.map(|account| account as _);
        let shadows = report.map(|report| (self.options.fields, report));
        Told::more(More { decision, shown, lines, settling, shadows })
    }

    /// What the response to a request reports that one rule admits, under the rule's own quota.
    pub(crate) fn tell_one<A>(
        &self,
        request: &mut Request<A>,
        rule: &Compiled,
        at: Timestamp,
        outcome: Outcome,
    ) -> Told {
        rule.watch.admitted(&outcome);
        let (decision, shown) = (Decision::one(at, rule.name, outcome), self.shown());
        if shown.exposed {
            expose(request.extensions_mut(), || decision.clone());
        }
        let lines = self.options.fields.lines(&decision, std::iter::once(rule.policy(&QuotaChoice::Own(0))));
        Told::more(More { decision, shown, lines, settling: None, shadows: None })
    }

    #[inline]
    pub(crate) fn shown(&self) -> Shown {
        Shown { legacy: self.options.fields.legacy, exposed: self.options.expose_decision }
    }
}
