//! The path of a request that is not decided immediately: its key or tier is looked up, the store is asked,
//! or it is held back.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use ratekeeper_core::{Answer, Decision, StoreError};
use tokio::time::{Sleep, sleep};

use crate::gate::Verdict;
use crate::hold::{Held, Patience, Place, Ticket, Turn, Turning};
use crate::limiter::{Plan, Planning};
use crate::observe;
use crate::response::Rejection;
use crate::service::RateLimit;
use crate::told::Told;

type Charging = Pin<Box<dyn Future<Output = Result<Decision, StoreError>> + Send>>;

pin_project! {
    /// A request that waits, with the service that is ready for it.
    pub(crate) struct Waiting<I, R, A>
    {
        // Taken when the wait is over.
        request: Option<(RateLimit<I, R>, Request<A>)>,
        #[pin]
        step: Step,
    }
}

pin_project! {
    /// What the request waits for.
    #[project = StepProjected]
    enum Step
    {
        // A key or a tier.
        Planning { planning: Planning },
        // The store.
        Deciding { charging: Charging, plan: Option<Plan> },
        // The request's budget.
        Queueing { turning: Turning },
        // The request's turn.
        Holding { #[pin] sleep: Sleep, ticket: Ticket, place: Place, told: Told },
    }
}

/// What happens to a request that has waited.
pub(crate) enum Passed<I, R, A, B> {
    Forward { service: RateLimit<I, R>, request: Request<A>, told: Told },
    Answer(Response<B>),
}

impl<I, R, A> Waiting<I, R, A> {
    /// Waits for a key or a tier.
    pub(crate) fn plan(planning: Planning, service: RateLimit<I, R>, request: Request<A>) -> Self {
        Self { request: Some((service, request)), step: Step::Planning { planning } }
    }

    /// Waits for the store.
    pub(crate) fn decide(
        charging: Charging,
        plan: Plan,
        service: RateLimit<I, R>,
        request: Request<A>,
    ) -> Self {
        Self { request: Some((service, request)), step: Step::Deciding { charging, plan: Some(plan) } }
    }

    /// Waits for the request's budget.
    pub(crate) fn queue(turning: Turning, service: RateLimit<I, R>, request: Request<A>) -> Self {
        Self { request: Some((service, request)), step: Step::Queueing { turning } }
    }

    /// Waits for the request's turn.
    pub(crate) fn hold(
        held: Held,
        ticket: Ticket,
        plan: Plan,
        told: Told,
        service: RateLimit<I, R>,
        request: Request<A>,
    ) -> Self {
        let step = Step::hold(&service, held, ticket, plan, told);
        Self { request: Some((service, request)), step }
    }
}

impl Step {
    fn queue<I, R>(service: &RateLimit<I, R>, plan: Plan, denied: Option<Decision>) -> Self {
        let limiter = service.limiter().clone();
        Self::Queueing { turning: limiter.take_turn(plan, Patience::OfRules, denied) }
    }

    fn hold<I, R>(service: &RateLimit<I, R>, held: Held, ticket: Ticket, plan: Plan, told: Told) -> Self {
        let sleep = sleep(held.decision.delay());
        let place = Place::new(service.limiter().clone(), plan, held);
        Self::Holding { sleep, ticket, place, told }
    }
}

/// What the end of a step leads to.
#[expect(clippy::large_enum_variant, reason = "it is passed on at once")]
enum Next<B> {
    Step(Step),
    Forward(Told),
    Answer(Response<B>),
}

impl<I, R, A> Waiting<I, R, A> {
    /// What happens to the request, once that is known.
    pub(crate) fn poll_passed<B>(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Passed<I, R, A, B>>
    where
        R: Rejection<B>,
    {
        let mut this = self.project();
        loop {
            // It is gone if the wait is over. Then this stays pending forever.
            let Some((service, request)) = this.request else { return Poll::Pending };
            let next = match this.step.as_mut().project() {
                StepProjected::Planning { planning } => {
                    planned(service, request, ready!(planning.as_mut().poll(cx)))
                }
                StepProjected::Deciding { charging, plan } => {
                    let answer = ready!(charging.as_mut().poll(cx));
                    // Never `None`: the next step replaces this one immediately.
                    let Some(plan) = plan.take() else { return Poll::Pending };
                    judged(service, service.gate().judge(request, &plan, &answer, false), plan)
                }
                StepProjected::Queueing { turning } => {
                    let (plan, turn) = ready!(turning.as_mut().poll(cx));
                    turned(service, request, plan, turn)
                }
                StepProjected::Holding { sleep, ticket, place, told } => {
                    if sleep.poll(cx).is_ready() {
                        place.take();
                        Next::Forward(std::mem::replace(told, Told::Nothing))
                    } else {
                        ready!(ticket.poll_closed(cx));
                        Next::Answer(service.gate().no_room(request))
                    }
                }
            };
            match next {
                Next::Step(step) => this.step.set(step),
                Next::Answer(response) => {
                    *this.request = None;
                    return Poll::Ready(Passed::Answer(response));
                }
                Next::Forward(told) => {
                    let Some((service, request)) = this.request.take() else { return Poll::Pending };
                    return Poll::Ready(Passed::Forward { service, request, told });
                }
            }
        }
    }
}

/// After a request's charges are known.
fn planned<I, R, A, B>(service: &RateLimit<I, R>, request: &mut Request<A>, plan: Plan) -> Next<B>
where
    R: Rejection<B>,
{
    if plan.is_empty() {
        service.gate().settle_nothing(request, plan.rules());
        return Next::Forward(Told::Nothing);
    }
    if let Some(refused) = plan.refused() {
        return Next::Answer(service.gate().refuse(request, plan.rules(), refused));
    }
    if plan.entries().is_empty() {
        return Next::Forward(service.gate().shadow_alone(request, &plan));
    }
    if service.limiter().has_line(&plan, Patience::OfRules) {
        return Next::Step(Step::queue(service, plan, None));
    }
    match service.limiter().decide(&plan) {
        Answer::Now(answer) => judged(service, service.gate().judge(request, &plan, &answer, false), plan),
        Answer::Later(charging) => Next::Step(Step::Deciding { charging, plan: Some(plan) }),
    }
}

/// After the store has answered.
fn judged<I, R, B>(service: &RateLimit<I, R>, verdict: Verdict<B>, plan: Plan) -> Next<B> {
    match verdict {
        Verdict::Forward(told) => Next::Forward(told),
        Verdict::Reject(response) => Next::Answer(response),
        Verdict::Hold(held, ticket, told) => Next::Step(Step::hold(service, held, ticket, plan, told)),
        Verdict::Queue(denied) => Next::Step(Step::queue(service, plan, Some(denied))),
    }
}

/// After waiting for a budget.
fn turned<I, R, A, B>(service: &RateLimit<I, R>, request: &mut Request<A>, plan: Plan, turn: Turn) -> Next<B>
where
    R: Rejection<B>,
{
    let gate = service.gate();
    match turn {
        Turn::Answered { answer, .. } => judged(service, gate.judge(request, &plan, &answer, true), plan),
        Turn::NoRoom(Some(denied)) => Next::Answer(gate.deny_planned(request, &plan, denied)),
        Turn::NoRoom(None) => {
            observe::no_room(&plan);
            Next::Answer(gate.no_room(request))
        }
    }
}
