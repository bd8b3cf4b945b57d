//! What the layer decides with: from a request and the store's answer to what becomes of the request.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderValue, Method, Request, Response};
use tollgate_core::{Decision, MemoryStore, Outcome, Retry, RuleName, Store, StoreError, Timestamp};

use crate::RequestHead;
use crate::headers::{HeaderFields, Lines, Trio};
use crate::hold::{Held, Patience, Ticket};
use crate::limiter::{Fallback, Limiter, Plan, ShadowReport, Shadowing};
use crate::observe::{self, How, Said, Sight};
use crate::response::{Fields, Refusal, Rejection};
use crate::rule::{Compiled, QuotaChoice, Role, Rules};
use crate::settle::{Account, Limits};
use crate::told::{More, One, Shown, Told, expose, tell_denial};

/// A limiter, and how it speaks to clients.
#[derive(Clone, Debug)]
pub(crate) struct Gate<S, R> {
    pub(crate) limiter: Limiter<S>,
    pub(crate) fields: HeaderFields,
    pub(crate) charge_preflights: bool,
    pub(crate) expose_decision: bool,
    pub(crate) rejection: R,
}

/// What becomes of a request.
pub(crate) enum Verdict<B> {
    /// It goes on.
    Forward(Told),
    /// It goes on after the decision's delay.
    Hold(Held, Ticket, Told),
    /// It waits for its budget, of which this has been said.
    Queue(Decision),
    /// It is answered.
    Reject(Response<B>),
}

impl<S: Store, R> Gate<S, R> {
    /// Whether the request is none of the limiter's business.
    #[inline]
    pub(crate) fn is_exempt<A>(&self, request: &Request<A>) -> bool {
        *request.method() == Method::OPTIONS
            && !self.charge_preflights
            && RequestHead::from(request).is_preflight()
    }

    /// Looks around with a request that goes on, and that these rules have counted.
    #[cold]
    #[inline(never)]
    pub(crate) fn look_around<A>(
        &self,
        request: &mut Request<A>,
        rules: &Rules,
        asked: impl IntoIterator<Item = usize>,
        at: Timestamp,
    ) {
        // What is marked are its extensions, and what is looked at is the rest.
        let mut extensions = std::mem::take(request.extensions_mut());
        let sight = Sight { headers: request.headers(), rules, asked: asked.into_iter().collect() };
        self.limiter.look_around_and_mark(at, &sight, &mut extensions);
        *request.extensions_mut() = extensions;
    }

    /// The same with one that is denied.
    #[cold]
    #[inline(never)]
    pub(crate) fn look_around_denied<A>(
        &self,
        request: &Request<A>,
        rules: &Rules,
        asked: impl IntoIterator<Item = usize>,
        at: Timestamp,
    ) {
        let sight = Sight { headers: request.headers(), rules, asked: asked.into_iter().collect() };
        self.limiter.look_around_with(at, &sight);
    }

    /// What becomes of a request, having asked the store.
    #[inline(always)]
    pub(crate) fn judge<A, B>(
        &self,
        request: &mut Request<A>,
        plan: &Plan,
        answer: &Result<Decision, StoreError>,
        has_waited: bool,
    ) -> Verdict<B>
    where
        R: Rejection<B>,
    {
        let decision = match answer {
            Ok(decision) if decision.is_admitted() => decision,
            Ok(decision)
                if !has_waited && self.limiter.is_worth_waiting(plan, Patience::OfRules, decision) =>
            {
                return Verdict::Queue(decision.clone());
            }
            Ok(decision) => {
                return Verdict::Reject(self.deny_planned(request, plan, decision.clone()));
            }
            Err(error) => return self.fail(request, plan, error),
        };
        if self.expose_decision {
            expose(request.extensions_mut(), || decision.clone());
        }
        let account = self
            .settle(request, plan.rules(), |limiter| Account::new(limiter, plan, decision.clone(), false));
        let (told, shadowing) = match plan.shadows() {
            [] => (self.tell(decision, policies(plan), account), None),
            _ => self.tell_and_shadow(decision, plan, account),
        };
        if self.limiter.watch().is_due(decision.at()) {
            let asked = plan.entries().iter().map(|planned| planned.rule);
            self.look_around(request, plan.rules(), asked, decision.at());
        }
        if decision.is_delayed() {
            self.hold(request, plan, Held::new(decision, false).shadowing(shadowing), told)
        } else {
            observe::decided(plan, decision, if has_waited { How::Waited } else { How::AtOnce });
            Verdict::Forward(told)
        }
    }

    /// Holds a request back, if there is room.
    fn hold<A, B>(&self, request: &Request<A>, plan: &Plan, held: Held, told: Told) -> Verdict<B>
    where
        R: Rejection<B>,
    {
        if let Ok(ticket) = self.limiter.room().enter() {
            observe::decided(plan, &held.decision, if held.is_local { How::Locally } else { How::AtOnce });
            return Verdict::Hold(held, ticket, told);
        }
        held.give_back(&self.limiter, plan);
        observe::no_room(plan);
        Verdict::Reject(self.no_room(request))
    }

    /// What a request is answered that would have to wait where nobody can.
    pub(crate) fn no_room<A, B>(&self, request: &Request<A>) -> Response<B>
    where
        R: Rejection<B>,
    {
        self.reject(request, &Refusal::NoRoom, None)
    }

    /// What becomes of a request of which the store cannot tell.
    #[cold]
    fn fail<A, B>(&self, request: &mut Request<A>, plan: &Plan, error: &StoreError) -> Verdict<B>
    where
        R: Rejection<B>,
    {
        let reject = |mut response: Response<B>| {
            response.extensions_mut().insert(error.clone());
            Verdict::Reject(response)
        };
        let decision = match self.limiter.fall_back(plan, MemoryStore::decide) {
            Fallback::Deny(rule) => {
                observe::failed(plan, error, Said::DeniedByFailure, Some(rule));
                return reject(self.reject(request, &Refusal::Unavailable { error, rule }, None));
            }
            Fallback::Local(decision) if !decision.is_admitted() => {
                observe::decided(plan, &decision, How::Locally);
                return reject(self.deny(request, decision, local_policies(plan)));
            }
            Fallback::Local(decision) => Some(decision),
            Fallback::Allow => None,
        };
        request.extensions_mut().insert(error.clone());
        let Some(decision) = decision else {
            observe::failed(plan, error, Said::AllowedByFailure, None);
            self.settle_nothing(request, plan.rules());
            return Verdict::Forward(Told::Nothing);
        };
        if self.expose_decision {
            expose(request.extensions_mut(), || decision.clone());
        }
        let account =
            self.settle(request, plan.rules(), |limiter| Account::new(limiter, plan, decision.clone(), true));
        let told = self.tell(&decision, local_policies(plan), account);
        if decision.is_delayed() {
            self.hold(request, plan, Held::new(&decision, true), told)
        } else {
            observe::decided(plan, &decision, How::Locally);
            Verdict::Forward(told)
        }
    }

    /// Opens an account for a request that goes on, if there is a rule that settles what was charged, and gives it to
    /// the handler.
    #[inline]
    pub(crate) fn settle<A>(
        &self,
        request: &mut Request<A>,
        rules: &Rules,
        account: impl FnOnce(Limiter<S>) -> Account<S>,
    ) -> Option<Arc<Account<S>>> {
        if !rules.is_settled() {
            return None;
        }
        let account = Arc::new(account(self.limiter.clone()));
        Limits::new(Arc::<Account<S>>::clone(&account)).put(request.extensions_mut());
        Some(account)
    }

    /// The same for a request that goes on without having been charged.
    #[inline]
    pub(crate) fn settle_nothing<A>(&self, request: &mut Request<A>, rules: &Arc<Rules>) {
        let account = self.settle(request, rules, |limiter| Account::empty(limiter, Arc::clone(rules)));
        self.mark_uncounted(request, account.is_some());
    }

    /// Has a handler find its limits also where nothing was decided: what is not in the request or a store that fails are no
    /// reason for a handler to fail.
    #[inline]
    fn mark_uncounted<A>(&self, request: &mut Request<A>, has_account: bool) {
        if self.expose_decision && !has_account {
            Limits::mark_uncounted(request.extensions_mut());
        }
    }

    /// What a request is answered that has not got the key of a rule that wants it.
    pub(crate) fn refuse<A, B>(&self, request: &Request<A>, rules: &Rules, rule: RuleName) -> Response<B>
    where
        R: Rejection<B>,
    {
        let rule_of = rules.find(rule.as_str()).map(|number| rules.rule(number));
        rule_of.into_iter().for_each(|rule| rule.watch.missing_key(Role::Enforced));
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let at = Timestamp::UNIX_EPOCH.saturating_add(since_epoch);
        self.limiter.glance(at);
        let own = QuotaChoice::Own(0);
        let limit = rule_of.map_or(0, |rule| rule.quota(&own).max());
        // As of a cost that never fits: nothing has been used, and there is nothing to wait for.
        let outcome = Outcome::denied(limit, limit, Duration::ZERO, Duration::ZERO, Retry::Never);
        // It speaks of this rule alone: the others have not been asked.
        let policy = rule_of.map(|rule| rule.policy(&own));
        self.deny(request, Decision::one(at, rule, outcome), policy.into_iter())
    }

    pub(crate) fn deny_planned<A, B>(
        &self,
        request: &Request<A>,
        plan: &Plan,
        decision: Decision,
    ) -> Response<B>
    where
        R: Rejection<B>,
    {
        observe::decided(plan, &decision, How::AtOnce);
        if self.limiter.watch().is_due(decision.at()) {
            let asked = plan.entries().iter().map(|planned| planned.rule);
            self.look_around_denied(request, plan.rules(), asked, decision.at());
        }
        self.deny(request, decision, policies(plan))
    }

    fn deny<A, B>(
        &self,
        request: &Request<A>,
        decision: Decision,
        policies: impl Iterator<Item = HeaderValue>,
    ) -> Response<B>
    where
        R: Rejection<B>,
    {
        let trio = if self.fields.legacy { Trio::of(&decision) } else { None };
        let mut response = self.reject(request, &Refusal::Limited(&decision), trio);
        if self.fields.ietf.is_some() {
            self.fields.lines(&decision, policies).write(response.headers_mut());
        }
        tell_denial(&mut response, decision, self.shown());
        response
    }

    #[inline]
    fn reject<A, B>(&self, request: &Request<A>, refusal: &Refusal<'_>, trio: Option<Trio>) -> Response<B>
    where
        R: Rejection<B>,
    {
        self.rejection.respond(&RequestHead::from(request), refusal, &Fields::new(refusal, trio))
    }

    #[inline]
    fn tell(
        &self,
        decision: &Decision,
        policies: impl Iterator<Item = HeaderValue>,
        account: Option<Arc<Account<S>>>,
    ) -> Told {
        let shown = self.shown();
        if shown.exposed || self.fields.ietf.is_some() || account.is_some() {
            let (lines, settling) =
                (self.fields.lines(decision, policies), account.map(|account| account as _));
            return Told::more(More { decision: decision.clone(), shown, lines, settling, shadows: None });
        }
        match decision.tightest() {
            Some((rule, outcome)) => Told::One(One { rule, at: decision.at(), outcome: *outcome, shown }),
            None => Told::Nothing,
        }
    }

    /// The same for a request that there are rules in shadow for, which are asked now, or when it goes on if it is held
    /// back: it may go away before.
    #[cold]
    fn tell_and_shadow(
        &self,
        decision: &Decision,
        plan: &Plan,
        account: Option<Arc<Account<S>>>,
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
        let lines = self.fields.lines(decision, policies(plan));
        let (settling, shadows) = (account.map(|account| account as _), Some((self.fields, report)));
        let more = More { decision: decision.clone(), shown: self.shown(), lines, settling, shadows };
        (Told::more(more), shadowing)
    }

    /// What becomes of a request for which there are only rules in shadow.
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
        let shown = Shown { legacy: self.fields.legacy, exposed: false };
        let (decision, lines) = (Decision::new(Timestamp::UNIX_EPOCH), Lines::default());
        let settling = account.map(|account| account as _);
        let shadows = report.map(|report| (self.fields, report));
        Told::more(More { decision, shown, lines, settling, shadows })
    }

    /// The same for a request that one rule admits, under the rule's own quota.
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
        let lines = self.fields.lines(&decision, std::iter::once(rule.policy(&QuotaChoice::Own(0))));
        Told::more(More { decision, shown, lines, settling: None, shadows: None })
    }

    #[inline]
    pub(crate) fn shown(&self) -> Shown {
        Shown { legacy: self.fields.legacy, exposed: self.expose_decision }
    }

    /// What a request is answered that its one rule denies, under the rule's own quota.
    #[inline(never)]
    pub(crate) fn deny_one<A, B>(
        &self,
        request: &Request<A>,
        rule: &Compiled,
        at: Timestamp,
        outcome: Outcome,
    ) -> Response<B>
    where
        R: Rejection<B>,
    {
        rule.watch.denied(at, &outcome);
        let policy = std::iter::once_with(|| rule.policy(&QuotaChoice::Own(0)));
        self.deny(request, Decision::one(at, rule.name, outcome), policy)
    }
}

/// The policies of a plan's rules.
fn policies(plan: &Plan) -> impl Iterator<Item = HeaderValue> + '_ {
    let rules = plan.rules();
    plan.entries().iter().map(|planned| rules.rule(planned.rule).policy(&planned.quota))
}

/// The policies of those of a plan's rules that decide locally when the store fails.
fn local_policies(plan: &Plan) -> impl Iterator<Item = HeaderValue> + '_ {
    let rules = plan.rules();
    plan.entries().iter().filter_map(|planned| rules.rule(planned.rule).local_policy(&planned.quota))
}
