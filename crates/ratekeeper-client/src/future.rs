//! The future of a call.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::error::Error;

/// The future of a [`Pacing`](crate::Pacing) service.
///
/// Dropping it leaves the queue, or cancels the request that is in flight.
pub struct ResponseFuture<T, E>(Pin<Box<dyn Future<Output = Result<T, Error<E>>> + Send>>);

impl<T, E> ResponseFuture<T, E> {
    pub(crate) fn new(future: impl Future<Output = Result<T, Error<E>>> + Send + 'static) -> Self {
        Self(Box::pin(future))
    }
}

impl<T, E> Future for ResponseFuture<T, E> {
    type Output = Result<T, Error<E>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(cx)
    }
}

impl<T, E> fmt::Debug for ResponseFuture<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
