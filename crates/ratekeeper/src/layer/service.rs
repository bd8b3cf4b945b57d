//! The service.

use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::RateLimitLayer;
use super::future::ResponseFuture;
use super::process::{Next, Processor};
use super::rejection::{JsonRejection, Rejection};
use crate::limiter::Limiter;

/// A service whose requests are limited. See [`RateLimitLayer`].
#[derive(Clone, Debug)]
pub struct RateLimit<S, R = JsonRejection> {
    pub(super) inner: S,
    pub(super) processor: Processor<R>,
}

impl<S> RateLimit<S> {
    /// Limits the requests to a service, by a limiter or by a quota for each peer address.
    ///
    /// # Panics
    ///
    /// If it is made from an invalid quota.
    #[track_caller]
    pub fn new(inner: S, limiter: impl Into<Limiter>) -> Self {
        tower_layer::Layer::layer(&RateLimitLayer::new(limiter), inner)
    }

    /// The layer that limits by a limiter, or by a quota for each peer address.
    ///
    /// # Panics
    ///
    /// If it is made from an invalid quota.
    #[track_caller]
    pub fn layer(limiter: impl Into<Limiter>) -> RateLimitLayer {
        RateLimitLayer::new(limiter)
    }
}

impl<S, R> RateLimit<S, R> {
    /// The inner service.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service.
    pub const fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner service.
    pub fn into_inner(self) -> S {
        self.inner
    }

    /// The limiter.
    #[must_use]
    pub const fn limiter(&self) -> &Limiter {
        &self.processor.limiter
    }
}

impl<S, R, A, B> Service<Request<A>> for RateLimit<S, R>
where
    S: Service<Request<A>, Response = Response<B>> + Clone,
    R: Rejection<B> + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S, R, A, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        match self.processor.start(&mut request) {
            Next::Forward(report) => ResponseFuture::forward(self.inner.call(request), report),
            Next::Reject(response) => ResponseFuture::reject(response),
            Next::Wait(step) => {
                // The service that was polled ready goes along, and a clone, which was not, takes its place.
                let clone = self.inner.clone();
                let inner = std::mem::replace(&mut self.inner, clone);
                let service = Self { inner, processor: self.processor.clone() };
                ResponseFuture::wait(service, request, step)
            }
        }
    }
}
