//! The response, once the fate of the request is known.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::RateLimit;
use super::process::{Next, Step};
use super::rejection::Rejection;
use super::report::Report;

pin_project! {
    /// The response of a [`RateLimit`] service.
    pub struct ResponseFuture<S, R, A, B>
    where
        S: Service<Request<A>>,
    {
        #[pin]
        state: State<S, R, A, B>,
    }
}

pin_project! {
    #[project = StateProjected]
    enum State<S, R, A, B>
    where
        S: Service<Request<A>>,
    {
        // The request was forwarded.
        Forwarding { #[pin] response: S::Future, report: Report },
        // The request was rejected.
        Rejected { response: Option<Response<B>> },
        // It is not yet known what happens to the request. Boxed, because the future is moved for every
        // request, while only those wait that ask a server or are delayed.
        Waiting { waiting: Box<Waiting<S, R, A>> },
    }
}

/// A request that waits, with the service that is ready for it.
struct Waiting<S, R, A> {
    /// Taken when the wait is over.
    request: Option<(RateLimit<S, R>, Request<A>)>,
    step: Option<Step>,
}

impl<S, R, A, B> ResponseFuture<S, R, A, B>
where
    S: Service<Request<A>>,
{
    pub(super) const fn forward(response: S::Future, report: Report) -> Self {
        Self { state: State::Forwarding { response, report } }
    }

    pub(super) const fn reject(response: Response<B>) -> Self {
        Self { state: State::Rejected { response: Some(response) } }
    }

    pub(super) fn wait(service: RateLimit<S, R>, request: Request<A>, step: Step) -> Self {
        let waiting = Waiting { request: Some((service, request)), step: Some(step) };
        Self { state: State::Waiting { waiting: Box::new(waiting) } }
    }
}

impl<S, R, A, B> Future for ResponseFuture<S, R, A, B>
where
    S: Service<Request<A>, Response = Response<B>> + Clone,
    R: Rejection<B> + Clone,
{
    type Output = Result<S::Response, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProjected::Forwarding { response, report } => {
                    // A response is large, so it is modified in place.
                    let mut polled = response.poll(cx);
                    if let Poll::Ready(Ok(response)) = &mut polled {
                        report.write(response);
                    }
                    return polled;
                }
                StateProjected::Rejected { response } => {
                    // When polled again after completion, it stays pending forever.
                    return response.take().map_or(Poll::Pending, |response| Poll::Ready(Ok(response)));
                }
                StateProjected::Waiting { waiting } => match ready!(waiting.poll_next(cx)) {
                    (Next::Forward(report), Some((mut service, request))) => {
                        State::Forwarding { response: service.inner.call(request), report }
                    }
                    (Next::Reject(response), _) => State::Rejected { response: Some(response) },
                    _ => return Poll::Pending,
                },
            };
            state.set(next);
        }
    }
}

impl<S, R, A> Waiting<S, R, A> {
    /// What happens to the request, once that is known. It is returned with the service, if it is forwarded.
    #[expect(clippy::type_complexity, reason = "it is taken apart at once")]
    fn poll_next<B>(&mut self, cx: &mut Context<'_>) -> Poll<(Next<B>, Option<(RateLimit<S, R>, Request<A>)>)>
    where
        R: Rejection<B>,
    {
        loop {
            // They are gone if the wait is over. Then this stays pending forever.
            let (Some((service, request)), Some(step)) = (&mut self.request, &mut self.step) else {
                return Poll::Pending;
            };
            let processor = &service.processor;
            let next = match step {
                Step::Plan { rules, planning } => {
                    let mut plan = ready!(planning.as_mut().poll(cx));
                    processor.planned(request, rules, &mut plan)
                }
                Step::Decide { rules, plan, answer } => {
                    let answer = ready!(answer.as_mut().poll(cx));
                    processor.answered(request, rules, plan, answer)
                }
                Step::Delay { delay, .. } => match ready!(delay.as_mut().poll(cx)) {
                    Err(_) => Next::Reject(processor.overloaded(request)),
                    Ok(()) => match self.step.take() {
                        Some(Step::Delay { forward, .. }) => processor.forward_delayed(*forward),
                        _ => return Poll::Pending,
                    },
                },
            };
            match next {
                Next::Wait(step) => self.step = Some(step),
                next => {
                    self.step = None;
                    return Poll::Ready((next, self.request.take()));
                }
            }
        }
    }
}

impl<S, R, A, B> fmt::Debug for ResponseFuture<S, R, A, B>
where
    S: Service<Request<A>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Forwarding { .. } => "ResponseFuture(forwarding)",
            State::Rejected { .. } => "ResponseFuture(rejected)",
            State::Waiting { .. } => "ResponseFuture(waiting)",
        })
    }
}
