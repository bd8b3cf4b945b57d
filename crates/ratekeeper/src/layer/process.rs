//! What happens to a request: the steps of the pipeline, and what HTTP makes of them.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, Request, Response};
use ratekeeper_core::{Answer, Decision, Outcome, Retry, StoreError};

use super::headers::{HeaderFields, Lines};
use super::rejection::{self, Rejection, RejectionReason};
use super::report::{self, Report};
use crate::limiter::settle::{Account, Limits};
use crate::limiter::{Delay, How, Limiter, Patience, Plan, Planned, Planning, ShadowReport, Verdict};
use crate::observe::{Said, now};
use crate::request::RequestHead;
use crate::rule::{Role, Rules};

/// A limiter, and how it responds to clients.
#[derive(Clone, Debug)]
pub(super) struct Processor<R> {
    pub(super) limiter: Limiter,
    pub(super) options: Options,
    pub(super) rejection: R,
}

/// The options of a layer. Grouped, because a router that is called directly copies them for each request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) fields: HeaderFields,
    pub(super) charge_preflights: bool,
    pub(super) expose_decision: bool,
}

/// What happens to a request next.
#[expect(clippy::large_enum_variant, reason = "it is looked at at once")]
pub(super) enum Next<B> {
    /// It is forwarded, and the response reports this.
    Forward(Report),
    /// It is answered with this response.
    Reject(Response<B>),
    /// It waits for this step.
    Wait(Step),
}

/// What a request waits for.
#[expect(clippy::large_enum_variant, reason = "it is in one box with the request")]
pub(super) enum Step {
    /// A key or a tier.
    Plan { rules: Arc<Rules>, planning: Planning },
    /// The store.
    Decide { rules: Arc<Rules>, plan: Plan, answer: BoxAnswer },
    /// The delay of its decision.
    Delay { delay: Delay, forward: Box<Delayed> },
}

pub(super) type BoxAnswer = std::pin::Pin<Box<dyn Future<Output = Result<Decision, StoreError>> + Send>>;

/// The IETF fields, the account, and the rules in shadow of a request.
type More = (Lines, Option<Arc<Account>>, Option<Arc<ShadowReport>>);

/// A request that is forwarded after its delay.
pub(super) struct Delayed {
    rules: Arc<Rules>,
    plan: Plan,
    report: Report,
    account: Option<Arc<Account>>,
    shadows: Option<Arc<ShadowReport>>,
    is_local: bool,
}

impl<R> Processor<R> {
    /// Decides about a request, as far as that is possible at once.
    pub(super) fn start<A, B>(&self, request: &mut Request<A>) -> Next<B>
    where
        R: Rejection<B>,
    {
        let rules = self.limiter.rules();
        if self.is_exempt(request) {
            return self.uncounted(request, &rules);
        }
        let mut plan = Plan::default();
        match self.limiter.plan(&rules, &RequestHead::from(&*request), &mut plan) {
            None => self.planned(request, &rules, &mut plan),
            Some(planning) => Next::Wait(Step::Plan { rules: Arc::clone(&rules), planning }),
        }
    }

    /// Whether the request is exempt from limiting.
    fn is_exempt<A>(&self, request: &Request<A>) -> bool {
        *request.method() == Method::OPTIONS
            && !self.options.charge_preflights
            && RequestHead::from(request).is_preflight()
    }

    /// The charges are known. The plan is taken only if the request has to wait: it is large.
    pub(super) fn planned<A, B>(
        &self,
        request: &mut Request<A>,
        rules: &Arc<Rules>,
        plan: &mut Plan,
    ) -> Next<B>
    where
        R: Rejection<B>,
    {
        if plan.is_empty() {
            return self.uncounted(request, rules);
        }
        if let Some(planned) = &plan.missing_key {
            return Next::Reject(self.deny_missing_key(request, rules, planned));
        }
        if plan.entries.is_empty() {
            return Next::Forward(self.shadow_only(request, rules, plan));
        }
        match self.limiter.ask(rules, plan, Patience::OfRules) {
            Answer::Now(answer) => self.answered(request, rules, plan, answer),
            Answer::Later(answer) => {
                let (rules, plan) = (Arc::clone(rules), std::mem::take(plan));
                Next::Wait(Step::Decide { rules, plan, answer })
            }
        }
    }

    /// The store has answered.
    pub(super) fn answered<A, B>(
        &self,
        request: &mut Request<A>,
        rules: &Arc<Rules>,
        plan: &mut Plan,
        answer: Result<Decision, StoreError>,
    ) -> Next<B>
    where
        R: Rejection<B>,
    {
        match self.limiter.judge(rules, plan, Patience::OfRules, answer) {
            Verdict::Decided { decision, failure } if decision.is_admitted() => {
                self.admit(request, rules, plan, decision, failure)
            }
            Verdict::Decided { decision, failure } => {
                plan.observe_decision(rules, &decision, How::after(failure.as_ref()));
                if self.limiter.watch().is_due(decision.at()) {
                    self.limiter.check_denied(decision.at(), rules, plan, request.headers());
                }
                let response = self.deny(request, decision, policies(rules, plan, failure.is_some()));
                Next::Reject(with_failure(response, failure))
            }
            Verdict::Allowed(error) => {
                plan.observe_failure(rules, &error, Said::AllowedByFailure, None);
                request.extensions_mut().insert(error);
                self.open_empty_account(request, rules);
                Next::Forward(Report::NOTHING)
            }
            Verdict::Unavailable { rule, error } => {
                plan.observe_failure(rules, &error, Said::DeniedByFailure, Some(rule));
                let reason = RejectionReason::Unavailable { error: &error, rule };
                let response = self.reject(request, &reason, None);
                Next::Reject(with_failure(response, Some(error)))
            }
        }
    }

    /// The request is admitted, at once or after a delay.
    fn admit<A, B>(
        &self,
        request: &mut Request<A>,
        rules: &Arc<Rules>,
        plan: &mut Plan,
        decision: Decision,
        failure: Option<StoreError>,
    ) -> Next<B>
    where
        R: Rejection<B>,
    {
        let (how, is_local) = (How::after(failure.as_ref()), failure.is_some());
        let delay = match decision.is_delayed() {
            true => match self.limiter.delay(rules, plan, &decision, how) {
                Ok(delay) => Some(delay),
                Err(_) => return Next::Reject(self.overloaded(request)),
            },
            false => {
                plan.observe_decision(rules, &decision, how);
                None
            }
        };
        if self.limiter.watch().is_due(decision.at()) {
            self.check(request, rules, plan, decision.at());
        }
        if let Some(failure) = failure {
            request.extensions_mut().insert(failure);
        }
        if self.options.expose_decision {
            report::expose(request.extensions_mut(), decision.clone());
        }
        let account = self.open_account(request, rules, |limiter| {
            Account::new(limiter, Arc::clone(rules), plan, decision.clone(), is_local)
        });
        let shadows = if plan.shadows.is_empty() || is_local { None } else { ShadowReport::of(rules, plan) };
        let lines = || self.options.fields.lines(&decision, || policies(rules, plan, is_local));
        let has_more = self.options.fields.ietf.is_some() || account.is_some() || shadows.is_some();
        let more = has_more.then(|| (lines(), account.clone(), shadows.clone()));
        let report = self.report(decision, more);
        match delay {
            None => {
                if !is_local && !plan.shadows.is_empty() {
                    self.limiter.shadow(rules, plan, account.as_ref(), shadows.as_ref());
                }
                Next::Forward(report)
            }
            Some(delay) => {
                let (rules, plan) = (Arc::clone(rules), std::mem::take(plan));
                let forward = Box::new(Delayed { rules, plan, report, account, shadows, is_local });
                Next::Wait(Step::Delay { delay, forward })
            }
        }
    }

    /// The delay of a request is over.
    pub(super) fn forward_delayed<B>(&self, delayed: Delayed) -> Next<B> {
        let Delayed { rules, plan, report, account, shadows, is_local } = delayed;
        if !is_local {
            self.limiter.shadow(&rules, &plan, account.as_ref(), shadows.as_ref());
        }
        Next::Forward(report)
    }

    /// Forwards a request that no rule counts.
    fn uncounted<A, B>(&self, request: &mut Request<A>, rules: &Arc<Rules>) -> Next<B> {
        self.limiter.check_uncounted();
        self.open_empty_account(request, rules);
        Next::Forward(Report::NOTHING)
    }

    /// Forwards a request that is counted only in shadow.
    #[cold]
    fn shadow_only<A>(&self, request: &mut Request<A>, rules: &Arc<Rules>, plan: &Plan) -> Report {
        let account =
            self.open_account(request, rules, |limiter| Account::shadow(limiter, Arc::clone(rules), plan));
        if self.options.expose_decision && account.is_none() {
            Limits::mark_uncounted(request.extensions_mut());
        }
        let shadows = ShadowReport::of(rules, plan);
        self.limiter.shadow(rules, plan, account.as_ref(), shadows.as_ref());
        let nothing = Decision::new(ratekeeper_core::Timestamp::UNIX_EPOCH);
        self.report(nothing, Some((Lines::default(), account, shadows)))
    }

    /// What the response to a forwarded request reports.
    #[inline]
    fn report(&self, decision: Decision, more: Option<More>) -> Report {
        let Options { fields, expose_decision, .. } = self.options;
        let report = Report::new(decision, fields, expose_decision);
        match more {
            None => report,
            Some((lines, account, shadows)) => report.with(fields, lines, account, shadows),
        }
    }

    /// Does the periodic check with a request that is forwarded.
    #[cold]
    fn check<A>(&self, request: &mut Request<A>, rules: &Rules, plan: &Plan, at: ratekeeper_core::Timestamp) {
        // The extensions are marked while the rest of the request is read.
        let mut extensions = std::mem::take(request.extensions_mut());
        self.limiter.check_forwarded(at, rules, plan, request.headers(), &mut extensions);
        *request.extensions_mut() = extensions;
    }

    /// Opens an account for a forwarded request, if a rule settles what was charged, and gives it to the
    /// handler.
    fn open_account<A>(
        &self,
        request: &mut Request<A>,
        rules: &Rules,
        account: impl FnOnce(Limiter) -> Account,
    ) -> Option<Arc<Account>> {
        if !rules.is_settled() {
            return None;
        }
        let account = Arc::new(account(self.limiter.clone()));
        Limits::new(Arc::clone(&account)).put(request.extensions_mut());
        Some(account)
    }

    /// The same for a request that is forwarded without having been charged. A handler finds its limits even
    /// then: a missing key or a failing store is no reason for a handler to fail.
    fn open_empty_account<A>(&self, request: &mut Request<A>, rules: &Arc<Rules>) {
        let account = self.open_account(request, rules, |limiter| Account::empty(limiter, Arc::clone(rules)));
        if self.options.expose_decision && account.is_none() {
            Limits::mark_uncounted(request.extensions_mut());
        }
    }

    /// The response to a request without a key that a rule requires.
    #[cold]
    fn deny_missing_key<A, B>(&self, request: &Request<A>, rules: &Rules, planned: &Planned) -> Response<B>
    where
        R: Rejection<B>,
    {
        let (rule, at) = (rules.rule(planned.rule), now());
        rule.watch.missing_key(Role::Enforced);
        self.limiter.check(at);
        let limit = rule.quota(&planned.quota).max();
        // The same outcome as for a cost that never fits: nothing has been used, and there is nothing to wait
        // for.
        let outcome = Outcome::denied(limit, limit, Duration::ZERO, Duration::ZERO, Retry::Never);
        // It covers this rule alone: the others have not been asked.
        let policy = std::iter::once_with(|| rule.policy(&planned.quota));
        self.deny(request, Decision::one(at, rule.name, outcome), policy)
    }

    /// The response to a denied request.
    fn deny<A, B>(
        &self,
        request: &Request<A>,
        decision: Decision,
        policies: impl Iterator<Item = HeaderValue>,
    ) -> Response<B>
    where
        R: Rejection<B>,
    {
        let mut response = self.reject(request, &RejectionReason::Limited(&decision), Some(&decision));
        self.options.fields.lines(&decision, || policies).write(response.headers_mut());
        report::mark_denial(&mut response, decision, self.options.fields, self.options.expose_decision);
        response
    }

    /// The response to a request that would have to wait, when too many wait already.
    #[cold]
    pub(super) fn overloaded<A, B>(&self, request: &Request<A>) -> Response<B>
    where
        R: Rejection<B>,
    {
        self.reject(request, &RejectionReason::Overloaded, None)
    }

    fn reject<A, B>(
        &self,
        request: &Request<A>,
        reason: &RejectionReason<'_>,
        decision: Option<&Decision>,
    ) -> Response<B>
    where
        R: Rejection<B>,
    {
        let mut response = self.rejection.reject(&RequestHead::from(request), reason);
        let decision = decision.filter(|_| self.options.fields.legacy);
        rejection::write_fields(reason, decision, response.headers_mut());
        response
    }
}

/// Adds the store's failure to the extensions, for outer layers.
fn with_failure<B>(mut response: Response<B>, failure: Option<StoreError>) -> Response<B> {
    if let Some(failure) = failure {
        response.extensions_mut().insert(failure);
    }
    response
}

/// The policies of the rules that have decided.
fn policies<'a>(rules: &'a Rules, plan: &'a Plan, is_local: bool) -> impl Iterator<Item = HeaderValue> + 'a {
    plan.entries.iter().filter_map(move |planned| {
        let rule = rules.rule(planned.rule);
        if is_local { rule.local_policy(&planned.quota) } else { Some(rule.policy(&planned.quota)) }
    })
}
