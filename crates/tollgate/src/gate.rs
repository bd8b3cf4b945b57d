//! What the layer decides with: from a request and the store's answer to what becomes of the request.

use std::time::{Duration, SystemTime};

use http::{HeaderValue, Method, Request, Response};
use tollgate_core::{
    Algorithm, Decision, Outcome, Receipt, Refund, Retry, RuleName, Store, StoreError, Timestamp,
};

use crate::RequestHead;
use crate::headers::{HeaderFields, Trio};
use crate::limiter::{Limiter, Plan};
use crate::response::{Fields, Refusal, Rejection};
use crate::rule::{Compiled, QuotaChoice};
use crate::told::{More, One, Shown, Told, expose};

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
    Hold(Box<Decision>, Told),
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

    /// What becomes of a request, having asked the store.
    #[inline(always)]
    pub(crate) fn judge<A, B>(
        &self,
        request: &mut Request<A>,
        plan: &Plan,
        answer: &Result<Decision, StoreError>,
    ) -> Verdict<B>
    where
        R: Rejection<B>,
    {
        let decision = match answer {
            Ok(decision) if decision.is_admitted() => decision,
            Ok(decision) => {
                return Verdict::Reject(self.deny(request, decision.clone(), self.policies(plan)));
            }
            Err(error) => return self.fail(request, plan, error),
        };
        if self.expose_decision {
            expose(request.extensions_mut(), || decision.clone());
        }
        let told = self.tell(plan, decision);
        if decision.is_delayed() {
            Verdict::Hold(Box::new(decision.clone()), told)
        } else {
            Verdict::Forward(told)
        }
    }

    /// What becomes of a request of which the store cannot tell.
    #[cold]
    fn fail<A, B>(&self, request: &mut Request<A>, plan: &Plan, error: &StoreError) -> Verdict<B>
    where
        R: Rejection<B>,
    {
        if self.limiter.denies_on_failure(plan) {
            return Verdict::Reject(self.reject(request, &Refusal::Unavailable(error), None));
        }
        request.extensions_mut().insert(error.clone());
        Verdict::Forward(Told::NOTHING)
    }

    /// What a request is answered that has not got the key of a rule that wants it.
    pub(crate) fn refuse<A, B>(&self, request: &Request<A>, rule: RuleName) -> Response<B>
    where
        R: Rejection<B>,
    {
        let rules = self.limiter.rules();
        let rule_of = rules.find(rule.as_str()).map(|number| rules.rule(number));
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let at = Timestamp::UNIX_EPOCH.saturating_add(since_epoch);
        let own = QuotaChoice::Own(0);
        let limit = rule_of.map_or(0, |rule| rule.quota(&own).max());
        let outcome = Outcome::denied(limit, 0, Duration::ZERO, Duration::ZERO, Retry::Never);
        // It speaks of this rule alone: the others have not been asked.
        let policy = rule_of.map(|rule| rule.policy(&own));
        self.deny(request, Decision::one(at, rule, outcome), policy.into_iter())
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
        if self.expose_decision {
            expose(response.extensions_mut(), || decision);
        }
        response
    }

    #[inline]
    fn reject<A, B>(&self, request: &Request<A>, refusal: &Refusal<'_>, trio: Option<Trio>) -> Response<B>
    where
        R: Rejection<B>,
    {
        self.rejection.respond(&RequestHead::from(request), refusal, &Fields::new(refusal, trio))
    }

    /// The policies of a plan's rules.
    fn policies<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = HeaderValue> + 'a {
        let rules = self.limiter.rules();
        plan.entries().iter().map(|planned| rules.rule(planned.rule).policy(&planned.quota))
    }

    fn tell(&self, plan: &Plan, decision: &Decision) -> Told {
        let shown = self.shown();
        if shown.exposed || self.fields.ietf.is_some() {
            let lines = self.fields.lines(decision, self.policies(plan));
            return Told::more(More { decision: decision.clone(), shown, lines });
        }
        match decision.tightest() {
            Some((rule, outcome)) => Told::one(One { rule, at: decision.at(), outcome: *outcome, shown }),
            None => Told::NOTHING,
        }
    }

    /// The same for a request that one rule admits, under the rule's own quota.
    pub(crate) fn tell_one<A>(
        &self,
        request: &mut Request<A>,
        rule: &Compiled,
        at: Timestamp,
        outcome: Outcome,
    ) -> Told {
        let (decision, shown) = (Decision::one(at, rule.name, outcome), self.shown());
        if shown.exposed {
            expose(request.extensions_mut(), || decision.clone());
        }
        let lines = self.fields.lines(&decision, std::iter::once(rule.policy(&QuotaChoice::Own(0))));
        Told::more(More { decision, shown, lines })
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
        let policy = std::iter::once_with(|| rule.policy(&QuotaChoice::Own(0)));
        self.deny(request, Decision::one(at, rule.name, outcome), policy)
    }
}

/// A request's place in the queues that it waits in, which is given back if the request goes away.
pub(crate) struct Place<S: Store> {
    held: Option<(Limiter<S>, Plan, Box<Decision>)>,
}

impl<S: Store> Place<S> {
    pub(crate) fn new(limiter: Limiter<S>, plan: Plan, decision: Box<Decision>) -> Self {
        Self { held: Some((limiter, plan, decision)) }
    }

    /// It is the request's turn.
    pub(crate) fn take(&mut self) {
        self.held = None;
    }
}

impl<S: Store> Drop for Place<S> {
    fn drop(&mut self) {
        let Some((limiter, plan, decision)) = self.held.take() else { return };
        for planned in plan.entries() {
            let charge = limiter.charge_of(planned);
            if charge.quota.algorithm() != Algorithm::LeakyBucket {
                continue;
            }
            if let Some(receipt) = Receipt::of(&decision, charge.rule) {
                // The call hands the refund over; there is nobody to wait for it.
                drop(
                    limiter
                        .store()
                        .refund(&[Refund::new(charge.rule, charge.key, charge.cost).receipt(receipt)]),
                );
            }
        }
    }
}
