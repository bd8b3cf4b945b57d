//! What the layer decides with: from a request and the store's answer to what becomes of the request.

use std::time::{Duration, SystemTime};

use http::{HeaderValue, Request, Response};
use tollgate_core::{
    Algorithm, Decision, Outcome, Receipt, Refund, Retry, RuleName, Store, StoreError, Timestamp,
};

use crate::RequestHead;
use crate::headers::{HeaderFields, Written};
use crate::limiter::{Limiter, Plan};
use crate::response::{Refusal, Rejection};
use crate::rule::QuotaChoice;

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
    Forward(Option<Told>),
    /// It goes on after the decision's delay.
    Hold(Box<Decision>, Told),
    /// It is answered.
    Reject(Response<B>),
}

/// What the response to a request that goes on will tell.
#[derive(Debug)]
pub(crate) struct Told {
    fields: Written,
    /// For the extensions. In a box, as the future that this is part of is moved about for every request.
    decision: Option<Box<Decision>>,
}

impl Told {
    pub(crate) fn write<B>(self, response: &mut Response<B>) {
        // Where an inner layer has denied, its decision is why the response is what it is.
        let denied_within = response.extensions().get().is_some_and(|inner: &Decision| !inner.is_admitted());
        self.fields.write(response.headers_mut(), denied_within);
        if let Some(decision) = self.decision.filter(|_| !denied_within) {
            response.extensions_mut().insert(*decision);
        }
    }
}

impl<S: Store, R> Gate<S, R> {
    /// Whether the request is none of the limiter's business.
    #[inline]
    pub(crate) fn is_exempt(&self, head: &RequestHead<'_>) -> bool {
        !self.charge_preflights && head.is_preflight()
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
            Ok(decision) => return Verdict::Reject(self.deny(request, decision, self.policies(plan))),
            Err(error) => return self.fail(request, plan, error),
        };
        if self.expose_decision {
            request.extensions_mut().insert(decision.clone());
        }
        let told = self.tell(plan, decision);
        if decision.is_delayed() {
            Verdict::Hold(Box::new(decision.clone()), told)
        } else {
            Verdict::Forward(Some(told))
        }
    }

    /// What becomes of a request of which the store cannot tell.
    #[cold]
    fn fail<A, B>(&self, request: &mut Request<A>, plan: &Plan, error: &StoreError) -> Verdict<B>
    where
        R: Rejection<B>,
    {
        if self.limiter.denies_on_failure(plan) {
            return Verdict::Reject(self.reject(request, &Refusal::Unavailable(error)));
        }
        request.extensions_mut().insert(error.clone());
        Verdict::Forward(None)
    }

    /// What a request is answered that has not got the key of a rule that wants it.
    pub(crate) fn refuse<A, B>(&self, request: &Request<A>, rule: RuleName) -> Response<B>
    where
        R: Rejection<B>,
    {
        let rules = self.limiter.rules();
        let rule_of = rules.find(rule.as_str()).map(|number| rules.rule(number));
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut decision = Decision::new(Timestamp::UNIX_EPOCH.saturating_add(since_epoch));
        let own = QuotaChoice::Own(0);
        let limit = rule_of.map_or(0, |rule| rule.quota(&own).max());
        decision.push(rule, Outcome::denied(limit, 0, Duration::ZERO, Duration::ZERO, Retry::Never));
        // It speaks of this rule alone: the others have not been asked.
        let policy = rule_of.map(|rule| rule.policy(&own));
        self.deny(request, &decision, policy.into_iter())
    }

    fn deny<A, B>(
        &self,
        request: &Request<A>,
        decision: &Decision,
        policies: impl Iterator<Item = HeaderValue>,
    ) -> Response<B>
    where
        R: Rejection<B>,
    {
        let mut response = self.reject(request, &Refusal::Limited(decision));
        self.fields.of(decision, policies).write(response.headers_mut(), false);
        if self.expose_decision {
            response.extensions_mut().insert(decision.clone());
        }
        response
    }

    fn reject<A, B>(&self, request: &Request<A>, refusal: &Refusal<'_>) -> Response<B>
    where
        R: Rejection<B>,
    {
        let mut response = self.rejection.reject(&RequestHead::from(request), refusal);
        refusal.write(response.headers_mut());
        response
    }

    /// The policies of a plan's rules.
    fn policies<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = HeaderValue> + 'a {
        let rules = self.limiter.rules();
        plan.entries().iter().map(|planned| rules.rule(planned.rule).policy(&planned.quota))
    }

    #[inline(always)]
    fn tell(&self, plan: &Plan, decision: &Decision) -> Told {
        Told {
            fields: self.fields.of(decision, self.policies(plan)),
            decision: self.expose_decision.then(|| Box::new(decision.clone())),
        }
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
