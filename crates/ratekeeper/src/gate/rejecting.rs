//! The responses to rejected requests.

use std::time::{Duration, SystemTime};

use http::{HeaderValue, Request, Response};
use ratekeeper_core::{Decision, Outcome, Retry, Timestamp};

use super::{Gate, policies};
use crate::RequestHead;
use crate::headers::Trio;
use crate::limiter::{Plan, Refused};
use crate::observe::{self, How};
use crate::response::{Fields, Refusal, Rejection};
use crate::rule::{Compiled, QuotaChoice, Role, Rules};
use crate::told::tell_denial;

impl<R> Gate<R> {
    /// The response to a request that would have to wait when there is no room.
    pub(crate) fn no_room<A, B>(&self, request: &Request<A>) -> Response<B>
    where
        R: Rejection<B>,
    {
        self.reject(request, &Refusal::NoRoom, None)
    }

    /// The response to a request without a key that a rule requires.
    pub(crate) fn refuse<A, B>(&self, request: &Request<A>, rules: &Rules, refused: &Refused) -> Response<B>
    where
        R: Rejection<B>,
    {
        let rule = rules.rule(refused.rule);
        rule.watch.missing_key(Role::Enforced);
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let at = Timestamp::UNIX_EPOCH.saturating_add(since_epoch);
        self.limiter.glance(at);
        let limit = rule.quota(&refused.quota).max();
        // The same outcome as for a cost that never fits: nothing has been used, and there is nothing to wait
        // for.
        let outcome = Outcome::denied(limit, limit, Duration::ZERO, Duration::ZERO, Retry::Never);
        // It covers this rule alone: the others have not been asked.
        let policy = std::iter::once_with(|| rule.policy(&refused.quota));
        self.deny(request, Decision::one(at, rule.name, outcome), policy)
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

    pub(super) fn deny<A, B>(
        &self,
        request: &Request<A>,
        decision: Decision,
        policies: impl Iterator<Item = HeaderValue>,
    ) -> Response<B>
    where
        R: Rejection<B>,
    {
        let trio = if self.options.fields.legacy { Trio::of(&decision) } else { None };
        let mut response = self.reject(request, &Refusal::Limited(&decision), trio);
        if self.options.fields.ietf.is_some() {
            self.options.fields.lines(&decision, policies).write(response.headers_mut());
        }
        tell_denial(&mut response, decision, self.shown());
        response
    }

    #[inline]
    pub(super) fn reject<A, B>(
        &self,
        request: &Request<A>,
        refusal: &Refusal<'_>,
        trio: Option<Trio>,
    ) -> Response<B>
    where
        R: Rejection<B>,
    {
        self.rejection.respond(&RequestHead::from(request), refusal, &Fields::new(refusal, trio))
    }

    /// The response to a request that its one rule denies, under the rule's own quota.
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
