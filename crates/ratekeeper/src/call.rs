//! The path of a request: it is forwarded immediately, as most are, or waits, or is answered.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use ratekeeper_core::{Answer, Charge, Decision, Key, Outcome, StoreError, Timestamp};
use tower_service::Service;

use crate::RequestHead;
use crate::future::ResponseFuture;
use crate::gate::{Gate, Verdict};
use crate::headers::Trio;
use crate::hold::Patience;
use crate::key::Extracted;
use crate::limiter::{Plan, Planner, Planning};
use crate::response::Rejection;
use crate::rule::{Match, Matching, Rules};
use crate::service::RateLimit;
use crate::told::{One, Told, expose};
use crate::waiting::Waiting;

/// The state of a request that is not forwarded immediately.
enum Asked {
    /// No rule counts the request.
    Nothing,
    /// A key or tier is being looked up.
    Planning(Planning),
    /// What to charge is known.
    Planned(Plan),
    /// The store has been asked.
    Charged(Plan, Answer<Decision>),
    /// The store has answered for one rule, given by number, under the rule's own quota.
    Answered { rule: usize, key: Key, cost: u32, at: Timestamp, outcome: Outcome },
}

impl From<Result<Plan, Planning>> for Asked {
    fn from(planned: Result<Plan, Planning>) -> Self {
        match planned {
            Ok(plan) if plan.is_empty() => Self::Nothing,
            Ok(plan) => Self::Planned(plan),
            Err(planning) => Self::Planning(planning),
        }
    }
}

/// The rules that match a request.
#[expect(clippy::large_enum_variant, reason = "it is looked at at once")]
enum Found<'a> {
    /// One rule, which has the same quota for all callers.
    One(Match<'a>),
    /// None: the request is not limited.
    None,
    /// Rules that need more work.
    Other(Asked),
}

impl<I, R, A, B> Service<Request<A>> for RateLimit<I, R>
where
    I: Service<Request<A>, Response = Response<B>> + Clone,
    R: Rejection<B> + Clone,
{
    type Response = I::Response;
    type Error = I::Error;
    type Future = ResponseFuture<I, R, A, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    // For most requests one rule matches, which has the same quota for all callers, and the store answers
    // immediately. For these this is one straight path. It is neither split into functions nor inlined into
    // its caller, because then the request and the future, which are large, are moved more often.
    #[inline(never)]
    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        let Self { inner, gate } = self;
        let current = gate.limiter.rules();
        let rules: &Arc<Rules> = &current;
        let matched = match rules.is_one_plain() && !gate.is_exempt(&request) {
            true => (0, None),
            false => match gate.find(&request, rules) {
                Found::One(matched) => matched,
                Found::None => return gate.pass_on(inner, request, rules),
                Found::Other(asked) => return gate.go_on(inner, request, rules, asked),
            },
        };
        let number = matched.0;
        let rule = rules.rule(number);
        let head = || RequestHead::from(&request).with_matched(std::slice::from_ref(&matched));
        let extracted = rule.key.extract(request.extensions(), head);
        let Extracted::Key(key) = &extracted else {
            let asked = Planner::one(rules, &head(), number, extracted).into();
            return gate.go_on(inner, request, rules, asked);
        };
        let cost = rule.cost(head);
        let mut charge = Charge::new(rule.name, key, rule.own_quota());
        charge.cost = cost;
        let (at, outcome) = match gate.limiter.store().charge(&[charge]) {
            Answer::Now(Ok(decision)) if decision.outcomes().len() == 1 => {
                (decision.at(), decision.tightest().map_or_else(|| unreachable!(), |(_, outcome)| *outcome))
            }
            answer => {
                let plan = Plan::one(Arc::clone(rules), number, *key, cost);
                return gate.go_on(inner, request, rules, Asked::Charged(plan, answer));
            }
        };
        if !outcome.is_admitted() || outcome.is_delayed() || gate.options.fields.ietf.is_some() {
            let asked = Asked::Answered { rule: number, key: *key, cost, at, outcome };
            return gate.go_on(inner, request, rules, asked);
        }
        rule.watch.admitted(&outcome);
        if gate.limiter.watch().is_due(at) {
            gate.look_around(&mut request, rules, [number], at);
        }
        if gate.options.expose_decision {
            expose(request.extensions_mut(), || Decision::one(at, rule.name, outcome));
        }
        let response = inner.call(request);
        // Made only now, so that it need not be kept across the call to the inner service.
        let one = One { rule: rule.name, trio: Trio { at, outcome }, shown: gate.shown() };
        ResponseFuture::forward_one(response, one)
    }
}

impl<R> Gate<R> {
    /// Finds the rules that match.
    #[inline(never)]
    fn find<'a, A>(&self, request: &Request<A>, rules: &'a Arc<Rules>) -> Found<'a> {
        if self.is_exempt(request) {
            return Found::None;
        }
        let head = RequestHead::from(request);
        match rules.matching(&head) {
            Matching::None => Found::None,
            Matching::One(matched) if rules.is_plain(matched.0) => Found::One(matched),
            matching => Found::Other(Planner::all(rules, &head, matching).into()),
        }
    }

    /// Handles a request that is not forwarded immediately.
    #[inline(never)]
    fn go_on<I, A, B>(
        &self,
        inner: &mut I,
        mut request: Request<A>,
        rules: &Arc<Rules>,
        asked: Asked,
    ) -> ResponseFuture<I, R, A, B>
    where
        I: Service<Request<A>, Response = Response<B>> + Clone,
        R: Rejection<B> + Clone,
    {
        let (plan, answer) = match asked {
            Asked::Answered { rule, at, outcome, .. } if !outcome.is_admitted() => {
                if self.limiter.watch().is_due(at) {
                    self.look_around_denied(&request, rules, [rule], at);
                }
                let rule = rules.rule(rule);
                return ResponseFuture::answer(self.deny_one(&request, rule, at, outcome));
            }
            Asked::Answered { rule, at, outcome, .. } if !outcome.is_delayed() => {
                if self.limiter.watch().is_due(at) {
                    self.look_around(&mut request, rules, [rule], at);
                }
                let told = self.tell_one(&mut request, rules.rule(rule), at, outcome);
                return ResponseFuture::forward(inner.call(request), told);
            }
            Asked::Answered { rule, key, cost, at, outcome } => {
                let name = rules.rule(rule).name;
                (Plan::one(Arc::clone(rules), rule, key, cost), Ok(Decision::one(at, name, outcome)))
            }
            Asked::Nothing => return self.pass_on(inner, request, rules),
            Asked::Planning(planning) => {
                return ResponseFuture::wait(Waiting::plan(planning, self.take_ready(inner), request));
            }
            Asked::Planned(plan) => {
                if let Some(refused) = plan.refused() {
                    return ResponseFuture::answer(self.refuse(&request, rules, refused));
                }
                if plan.entries().is_empty() {
                    let told = self.shadow_alone(&mut request, &plan);
                    return ResponseFuture::forward(inner.call(request), told);
                }
                if self.limiter.has_line(&plan, Patience::OfRules) {
                    return self.queue(inner, request, plan, None);
                }
                let answer = self.limiter.decide(&plan);
                return self.go_on(inner, request, rules, Asked::Charged(plan, answer));
            }
            Asked::Charged(plan, Answer::Now(answer)) => (plan, answer),
            Asked::Charged(plan, Answer::Later(charging)) => {
                let waiting = Waiting::decide(charging, plan, self.take_ready(inner), request);
                return ResponseFuture::wait(waiting);
            }
        };
        self.follow(inner, request, plan, &answer)
    }

    /// Follows the store's answer. The inner service is ready, so it can be called directly.
    #[inline]
    fn follow<I, A, B>(
        &self,
        inner: &mut I,
        mut request: Request<A>,
        plan: Plan,
        answer: &Result<Decision, StoreError>,
    ) -> ResponseFuture<I, R, A, B>
    where
        I: Service<Request<A>, Response = Response<B>> + Clone,
        R: Rejection<B> + Clone,
    {
        match self.judge(&mut request, &plan, answer, false) {
            Verdict::Forward(told) => ResponseFuture::forward(inner.call(request), told),
            Verdict::Reject(response) => ResponseFuture::answer(response),
            Verdict::Hold(held, ticket, told) => {
                ResponseFuture::wait(Waiting::hold(held, ticket, plan, told, self.take_ready(inner), request))
            }
            Verdict::Queue(denied) => self.queue(inner, request, plan, Some(denied)),
        }
    }

    /// Has a request wait for its budget. `denied` is the store's denial, if the store was asked.
    #[cold]
    fn queue<I, A, B>(
        &self,
        inner: &mut I,
        request: Request<A>,
        plan: Plan,
        denied: Option<Decision>,
    ) -> ResponseFuture<I, R, A, B>
    where
        I: Service<Request<A>, Response = Response<B>> + Clone,
        R: Rejection<B> + Clone,
    {
        let turning = self.limiter.clone().take_turn(plan, Patience::OfRules, denied);
        ResponseFuture::wait(Waiting::queue(turning, self.take_ready(inner), request))
    }

    /// Forwards a request about which there is nothing to report.
    #[inline(never)]
    fn pass_on<I, A, B>(
        &self,
        inner: &mut I,
        mut request: Request<A>,
        rules: &Arc<Rules>,
    ) -> ResponseFuture<I, R, A, B>
    where
        I: Service<Request<A>, Response = Response<B>>,
    {
        self.limiter.passed_by();
        self.settle_nothing(&mut request, rules);
        ResponseFuture::forward(inner.call(request), Told::Nothing)
    }

    /// Takes the service that was polled ready, and leaves a clone, which was not, in its place.
    fn take_ready<I: Clone>(&self, inner: &mut I) -> RateLimit<I, R>
    where
        R: Clone,
    {
        let clone = inner.clone();
        RateLimit::new(std::mem::replace(inner, clone), self.clone())
    }
}
