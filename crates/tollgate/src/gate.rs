//! What the layer decides with: from a request and the store's answer to what becomes of the request.

use std::time::{Duration, SystemTime};

use http::{HeaderValue, Method, Request, Response};
use tollgate_core::{
    Algorithm, Decision, MemoryStore, Outcome, Receipt, Refund, Retry, RuleName, Store, StoreError, Timestamp,
};

use crate::RequestHead;
use crate::headers::{HeaderFields, Trio};
use crate::limiter::{Fallback, Limiter, Plan};
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
    Hold(Held, Told),
    /// It is answered.
    Reject(Response<B>),
}

/// The decision by which a request is held back.
pub(crate) struct Held {
    pub(crate) decision: Box<Decision>,
    /// Whether it was made in this process, as the store failed.
    pub(crate) is_local: bool,
}

impl Held {
    fn new(decision: &Decision, is_local: bool) -> Self {
        Self { decision: Box::new(decision.clone()), is_local }
    }
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
        let told = self.tell(decision, self.policies(plan));
        if decision.is_delayed() {
            Verdict::Hold(Held::new(decision, false), told)
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
        let reject = |mut response: Response<B>| {
            response.extensions_mut().insert(error.clone());
            Verdict::Reject(response)
        };
        let decision = match self.limiter.fall_back(plan.entries(), MemoryStore::decide) {
            Fallback::Deny(rule) => {
                return reject(self.reject(request, &Refusal::Unavailable { error, rule }, None));
            }
            Fallback::Local(decision) if !decision.is_admitted() => {
                return reject(self.deny(request, decision, self.local_policies(plan)));
            }
            Fallback::Local(decision) => Some(decision),
            Fallback::Allow => None,
        };
        request.extensions_mut().insert(error.clone());
        let Some(decision) = decision else { return Verdict::Forward(Told::NOTHING) };
        if self.expose_decision {
            expose(request.extensions_mut(), || decision.clone());
        }
        let told = self.tell(&decision, self.local_policies(plan));
        if decision.is_delayed() {
            Verdict::Hold(Held::new(&decision, true), told)
        } else {
            Verdict::Forward(told)
        }
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

    /// The policies of those of a plan's rules that decide locally when the store fails.
    fn local_policies<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = HeaderValue> + 'a {
        let rules = self.limiter.rules();
        plan.entries().iter().filter_map(|planned| rules.rule(planned.rule).local_policy(&planned.quota))
    }

    #[inline]
    fn tell(&self, decision: &Decision, policies: impl Iterator<Item = HeaderValue>) -> Told {
        let shown = self.shown();
        if shown.exposed || self.fields.ietf.is_some() {
            let lines = self.fields.lines(decision, policies);
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
    held: Option<(Limiter<S>, Plan, Held)>,
}

impl<S: Store> Place<S> {
    pub(crate) fn new(limiter: Limiter<S>, plan: Plan, held: Held) -> Self {
        Self { held: Some((limiter, plan, held)) }
    }

    /// It is the request's turn.
    pub(crate) fn take(&mut self) {
        self.held = None;
    }
}

impl<S: Store> Drop for Place<S> {
    fn drop(&mut self) {
        let Some((limiter, plan, Held { decision, is_local })) = self.held.take() else { return };
        for planned in plan.entries() {
            let charge = limiter.charge_of(planned);
            if charge.quota.algorithm() != Algorithm::LeakyBucket {
                continue;
            }
            if let Some(receipt) = Receipt::of(&decision, charge.rule) {
                let refund = [Refund::new(charge.rule, charge.key, charge.cost).receipt(receipt)];
                // The call hands the refund over; there is nobody to wait for it.
                match limiter.local_store() {
                    Some(local) if is_local => drop(local.refund(&refund)),
                    _ => drop(limiter.store().refund(&refund)),
                }
            }
        }
    }
}
