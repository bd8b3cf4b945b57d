//! The way of a request that was not decided at once.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Response};
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};
use tollgate_core::{Answer, Store};
use tower_service::Service;

use crate::gate::{Place, Told, Verdict};
use crate::limiter::Plan;
use crate::response::Rejection;
use crate::service::RateLimit;

pin_project! {
    /// The response of a [`RateLimit`] service.
    pub struct ResponseFuture<I, S, R, A, B>
    where
        I: Service<Request<A>>,
        S: Store,
    {
        #[pin]
        state: State<I, S, R, A, B>,
    }
}

pin_project! {
    /// Where a request is: its key or tier is being looked up, the store is being asked, it is held back, it
    /// has gone on, or it has been answered.
    #[project = StateProjected]
    enum State<I, S, R, A, B>
    where
        I: Service<Request<A>>,
        S: Store,
    {
        Planning { planning: Pin<Box<dyn Future<Output = Plan> + Send>>, waiting: Option<Waiting<I, S, R, A>> },
        Deciding { #[pin] charging: S::Charging, plan: Plan, waiting: Option<Waiting<I, S, R, A>> },
        Holding { #[pin] sleep: Sleep, place: Place<S>, told: Option<Told>, waiting: Option<Waiting<I, S, R, A>> },
        Forwarding { #[pin] response: I::Future, told: Option<Told> },
        Answered { response: Option<Response<B>> },
    }
}

/// A request that waits, with the service that is ready for it.
struct Waiting<I, S, R, A> {
    service: RateLimit<I, S, R>,
    request: Request<A>,
}

impl<I, S, R, A, B> ResponseFuture<I, S, R, A, B>
where
    I: Service<Request<A>>,
    S: Store,
{
    pub(crate) fn plan(
        planning: Pin<Box<dyn Future<Output = Plan> + Send>>,
        service: RateLimit<I, S, R>,
        request: Request<A>,
    ) -> Self {
        Self { state: State::Planning { planning, waiting: Some(Waiting { service, request }) } }
    }

    pub(crate) fn decide(
        charging: S::Charging,
        plan: Plan,
        service: RateLimit<I, S, R>,
        request: Request<A>,
    ) -> Self {
        Self { state: State::Deciding { charging, plan, waiting: Some(Waiting { service, request }) } }
    }

    pub(crate) fn hold(
        delay: Duration,
        plan: Plan,
        told: Told,
        service: RateLimit<I, S, R>,
        request: Request<A>,
    ) -> Self
    where
        I: Clone,
        R: Clone,
    {
        Self { state: State::hold(delay, plan, told, Waiting { service, request }) }
    }

    pub(crate) const fn forward(response: I::Future, told: Option<Told>) -> Self {
        Self { state: State::Forwarding { response, told } }
    }

    pub(crate) const fn answer(response: Response<B>) -> Self {
        Self { state: State::Answered { response: Some(response) } }
    }
}

impl<I, S, R, A, B> State<I, S, R, A, B>
where
    I: Service<Request<A>, Response = Response<B>> + Clone,
    S: Store,
    R: Rejection<B> + Clone,
{
    /// A request whose charges are known.
    fn planned(plan: Plan, mut waiting: Waiting<I, S, R, A>) -> Self {
        let gate = waiting.service.gate();
        if plan.is_empty() {
            return Self::forward(waiting, None);
        }
        if let Some(rule) = plan.refused_by() {
            return Self::Answered { response: Some(gate.refuse(&waiting.request, &plan, rule)) };
        }
        match gate.limiter.decide(&plan) {
            Answer::Now(answer) => {
                let verdict = gate.judge(&mut waiting.request, &plan, answer);
                Self::judged(verdict, plan, waiting)
            }
            Answer::Later(charging) => Self::Deciding { charging, plan, waiting: Some(waiting) },
        }
    }

    /// A request of which it is known what becomes of it.
    fn judged(verdict: Verdict<B>, plan: Plan, waiting: Waiting<I, S, R, A>) -> Self {
        match verdict {
            Verdict::Forward(told) => Self::forward(waiting, told),
            Verdict::Reject(response) => Self::Answered { response: Some(response) },
            Verdict::Hold(delay, told) => Self::hold(delay, plan, told, waiting),
        }
    }

    fn forward(mut waiting: Waiting<I, S, R, A>, told: Option<Told>) -> Self {
        Self::Forwarding { response: waiting.service.get_mut().call(waiting.request), told }
    }
}

impl<I, S, R, A, B> State<I, S, R, A, B>
where
    I: Service<Request<A>> + Clone,
    S: Store,
    R: Clone,
{
    fn hold(delay: Duration, plan: Plan, told: Told, waiting: Waiting<I, S, R, A>) -> Self {
        let place = Place::new(waiting.service.gate().limiter.clone(), plan, told.decision.clone());
        Self::Holding { sleep: sleep(delay), place, told: Some(told), waiting: Some(waiting) }
    }
}

impl<I, S, R, A, B> Future for ResponseFuture<I, S, R, A, B>
where
    I: Service<Request<A>, Response = Response<B>> + Clone,
    S: Store,
    R: Rejection<B> + Clone,
{
    type Output = Result<I::Response, I::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            // Each of the options below is taken once, when the state that it belongs to is left; a future
            // that is polled again after it was ready is pending for ever.
            let next = match state.as_mut().project() {
                StateProjected::Forwarding { response, told } => {
                    let mut response = ready!(response.poll(cx))?;
                    if let Some(told) = told.take() {
                        told.write(&mut response);
                    }
                    return Poll::Ready(Ok(response));
                }
                StateProjected::Answered { response } => {
                    return response.take().map_or(Poll::Pending, |response| Poll::Ready(Ok(response)));
                }
                StateProjected::Planning { planning, waiting } => {
                    let plan = ready!(planning.as_mut().poll(cx));
                    let Some(waiting) = waiting.take() else { return Poll::Pending };
                    State::planned(plan, waiting)
                }
                StateProjected::Deciding { charging, plan, waiting } => {
                    let answer = ready!(charging.poll(cx));
                    let Some(mut waiting) = waiting.take() else { return Poll::Pending };
                    let plan = std::mem::take(plan);
                    let verdict = waiting.service.gate().judge(&mut waiting.request, &plan, answer);
                    State::judged(verdict, plan, waiting)
                }
                StateProjected::Holding { sleep, place, told, waiting } => {
                    ready!(sleep.poll(cx));
                    let Some(waiting) = waiting.take() else { return Poll::Pending };
                    place.take();
                    State::forward(waiting, told.take())
                }
            };
            state.set(next);
        }
    }
}

impl<I, S, R, A, B> std::fmt::Debug for ResponseFuture<I, S, R, A, B>
where
    I: Service<Request<A>>,
    S: Store,
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.state {
            State::Planning { .. } => "ResponseFuture(planning)",
            State::Deciding { .. } => "ResponseFuture(deciding)",
            State::Holding { .. } => "ResponseFuture(holding)",
            State::Forwarding { .. } => "ResponseFuture(forwarding)",
            State::Answered { .. } => "ResponseFuture(answered)",
        })
    }
}
