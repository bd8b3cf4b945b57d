//! The core of the layer: from a request and the store's answer to what happens to the request.

mod rejecting;
mod telling;

use std::sync::Arc;

use http::{HeaderValue, Method, Request, Response};
use ratekeeper_core::{Decision, MemoryStore, StoreError, Timestamp};

use crate::RequestHead;
use crate::headers::HeaderFields;
use crate::hold::{Held, Patience, Ticket};
use crate::limiter::{Fallback, Limiter, Plan};
use crate::observe::{self, How, Said, Sight};
use crate::response::{Refusal, Rejection};
use crate::rule::Rules;
use crate::settle::{Account, Limits};
use crate::told::{Told, expose};

/// A limiter, and how it responds to clients.
#[derive(Clone, Debug)]
pub(crate) struct Gate<R> {
    pub(crate) limiter: Limiter,
    pub(crate) options: Options,
    pub(crate) rejection: R,
}

/// The options of a layer. Grouped, because a router that is called directly copies them for each request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) fields: HeaderFields,
    pub(crate) charge_preflights: bool,
    pub(crate) expose_decision: bool,
}

/// What happens to a request.
pub(crate) enum Verdict<B> {
    /// It is forwarded.
    Forward(Told),
    /// It is forwarded after the decision's delay.
    Hold(Held, Ticket, Told),
    /// It waits for its budget, after this denial.
    Queue(Decision),
    /// It is answered with this response.
    Reject(Response<B>),
}

impl<R> Gate<R> {
    /// Whether the request is exempt from limiting.
    #[inline]
    pub(crate) fn is_exempt<A>(&self, request: &Request<A>) -> bool {
        *request.method() == Method::OPTIONS
            && !self.options.charge_preflights
            && RequestHead::from(request).is_preflight()
    }

    /// Does the periodic check with a request that is forwarded and that these rules have counted.
    #[cold]
    #[inline(never)]
    pub(crate) fn look_around<A>(
        &self,
        request: &mut Request<A>,
        rules: &Rules,
        asked: impl IntoIterator<Item = usize>,
        at: Timestamp,
    ) {
        // The extensions are marked while the rest of the request is read.
        let mut extensions = std::mem::take(request.extensions_mut());
        let sight = Sight { headers: request.headers(), rules, asked: asked.into_iter().collect() };
        self.limiter.look_around_and_mark(at, &sight, &mut extensions);
        *request.extensions_mut() = extensions;
    }

    /// The same with a request that is denied.
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

    /// What happens to a request, given the store's answer.
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
        if self.options.expose_decision {
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

    /// What happens to a request when the store fails.
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
        if self.options.expose_decision {
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

    /// Opens an account for a forwarded request, if a rule settles what was charged, and gives it to the
    /// handler.
    #[inline]
    pub(crate) fn settle<A>(
        &self,
        request: &mut Request<A>,
        rules: &Rules,
        account: impl FnOnce(Limiter) -> Account,
    ) -> Option<Arc<Account>> {
        if !rules.is_settled() {
            return None;
        }
        let account = Arc::new(account(self.limiter.clone()));
        Limits::new(Arc::<Account>::clone(&account)).put(request.extensions_mut());
        Some(account)
    }

    /// The same for a request that is forwarded without having been charged.
    #[inline]
    pub(crate) fn settle_nothing<A>(&self, request: &mut Request<A>, rules: &Arc<Rules>) {
        let account = self.settle(request, rules, |limiter| Account::empty(limiter, Arc::clone(rules)));
        self.mark_uncounted(request, account.is_some());
    }

    /// Lets a handler find its limits even if nothing was decided: a missing key or a failing store is no
    /// reason for a handler to fail.
    #[inline]
    fn mark_uncounted<A>(&self, request: &mut Request<A>, has_account: bool) {
        if self.options.expose_decision && !has_account {
            Limits::mark_uncounted(request.extensions_mut());
        }
    }
}

/// The policies of a plan's rules.
fn policies(plan: &Plan) -> impl Iterator<Item = HeaderValue> + '_ {
    let rules = plan.rules();
    plan.entries().iter().map(|planned| rules.rule(planned.rule).policy(&planned.quota))
}

/// The policies of a plan's rules that decide locally when the store fails.
fn local_policies(plan: &Plan) -> impl Iterator<Item = HeaderValue> + '_ {
    let rules = plan.rules();
    plan.entries().iter().filter_map(|planned| rules.rule(planned.rule).local_policy(&planned.quota))
}
