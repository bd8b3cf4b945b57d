//! The service: a request comes in, and goes on, waits, or is answered.

use std::task::{Context, Poll};

use http::{Request, Response};
use tollgate_core::{Answer, MemoryStore, Store};
use tower_service::Service;

use crate::RequestHead;
use crate::future::ResponseFuture;
use crate::gate::{Gate, Verdict};
use crate::limiter::{Limiter, Plan};
use crate::response::{JsonRejection, Rejection};
use crate::waiting::Waiting;

/// A service whose requests are limited. See [`RateLimitLayer`](crate::RateLimitLayer).
#[derive(Clone, Debug)]
pub struct RateLimit<I, S = MemoryStore, R = JsonRejection> {
    inner: I,
    gate: Gate<S, R>,
}

impl<I, S, R> RateLimit<I, S, R> {
    pub(crate) const fn new(inner: I, gate: Gate<S, R>) -> Self {
        Self { inner, gate }
    }

    /// The inner service.
    pub const fn get_ref(&self) -> &I {
        &self.inner
    }

    /// The inner service.
    pub const fn get_mut(&mut self) -> &mut I {
        &mut self.inner
    }

    /// The inner service.
    pub fn into_inner(self) -> I {
        self.inner
    }

    pub(crate) const fn gate(&self) -> &Gate<S, R> {
        &self.gate
    }

    /// The limiter.
    #[must_use]
    pub const fn limiter(&self) -> &Limiter<S> {
        &self.gate.limiter
    }
}

impl<I, S, R, A, B> Service<Request<A>> for RateLimit<I, S, R>
where
    I: Service<Request<A>, Response = Response<B>> + Clone,
    S: Store,
    R: Rejection<B> + Clone,
{
    type Response = I::Response;
    type Error = I::Error;
    type Future = ResponseFuture<I, S, R, A, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        let head = RequestHead::from(&request);
        if self.gate.is_exempt(&head) {
            return ResponseFuture::forward(self.inner.call(request), None);
        }
        let mut plan = Plan::default();
        if let Some(planning) = self.gate.limiter.plan(&head, &mut plan) {
            return ResponseFuture::wait(Waiting::plan(planning, self.take_ready(), request));
        }
        if plan.is_empty() {
            return ResponseFuture::forward(self.inner.call(request), None);
        }
        if let Some(rule) = plan.refused_by() {
            return ResponseFuture::answer(self.gate.refuse(&request, rule));
        }
        match self.gate.limiter.decide(&plan) {
            // Decided at once: the inner service, which is ready, can be called as it is.
            Answer::Now(answer) => match self.gate.judge(&mut request, &plan, &answer) {
                Verdict::Forward(told) => ResponseFuture::forward(self.inner.call(request), told),
                Verdict::Reject(response) => ResponseFuture::answer(response),
                Verdict::Hold(decision, told) => {
                    ResponseFuture::wait(Waiting::hold(decision, plan, told, self.take_ready(), request))
                }
            },
            Answer::Later(charging) => {
                ResponseFuture::wait(Waiting::decide(charging, plan, self.take_ready(), request))
            }
        }
    }
}

impl<I: Clone, S: Store, R: Clone> RateLimit<I, S, R> {
    /// The service that was polled ready, leaving a clone, which was not, in its place.
    fn take_ready(&mut self) -> Self {
        let clone = self.clone();
        std::mem::replace(self, clone)
    }
}
