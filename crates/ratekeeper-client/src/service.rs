//! The service.

use std::future::poll_fn;
use std::task::{Context, Poll};

use http::{HeaderMap, Request, Response, StatusCode};
use tower_service::Service;

use crate::body::{CloneBody, CloneEmpty};
use crate::call::{Exchange, Paced, run};
use crate::error::Error;
use crate::future::ResponseFuture;
use crate::pacer::{Pacer, Target};

/// Paces the requests of an HTTP client service. Made by [`PacingLayer`](crate::PacingLayer).
#[derive(Clone, Debug)]
pub struct Pacing<S, C = CloneEmpty> {
    inner: S,
    pacer: Pacer,
    clone_body: C,
}

impl<S, C> Pacing<S, C> {
    pub(crate) const fn new(inner: S, pacer: Pacer, clone_body: C) -> Self {
        Self { inner, pacer, clone_body }
    }

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
}

impl<S, C, B, R> Service<Request<B>> for Pacing<S, C>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    C: CloneBody<B> + Clone + Send + 'static,
    B: Send + 'static,
    R: Send + 'static,
{
    type Response = Response<R>;
    type Error = Error<S::Error>;
    type Future = ResponseFuture<Response<R>, S::Error>;

    /// Always ready. A request first waits for its turn, and then for the inner service, so it reserves
    /// nothing there while it waits.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let pacer = self.pacer.clone();
        let queue = pacer.queue(&Target::new(request.method(), request.uri(), request.headers()));
        let is_repeatable = pacer.options().retries.allows(request.method());
        let exchange = ServiceCall {
            service: self.inner.clone(),
            clone_body: self.clone_body.clone(),
            request: Some(request),
        };
        ResponseFuture::new(async move { run(&pacer, queue, is_repeatable, exchange).await })
    }
}

struct ServiceCall<S, C, B> {
    service: S,
    clone_body: C,
    /// The request to send, or a copy of the one that was sent.
    request: Option<Request<B>>,
}

impl<S, C, B, R> Exchange for ServiceCall<S, C, B>
where
    S: Service<Request<B>, Response = Response<R>> + Send,
    S::Future: Send,
    S::Error: Send,
    C: CloneBody<B> + Send,
    B: Send,
    R: Send,
{
    type Response = Response<R>;
    type Error = S::Error;

    async fn send(&mut self, keep: bool) -> Result<Self::Response, Self::Error> {
        poll_fn(|cx| self.service.poll_ready(cx)).await?;
        let Some(request) = self.request.take() else {
            unreachable!("a request is sent again only if there is a copy")
        };
        self.request = if keep { copy(&request, &self.clone_body) } else { None };
        self.service.call(request).await
    }

    fn can_repeat(&self) -> bool {
        self.request.is_some()
    }

    fn head(response: &Self::Response) -> (StatusCode, &HeaderMap) {
        (response.status(), response.headers())
    }

    fn expose(response: &mut Self::Response, paced: Paced) {
        response.extensions_mut().insert(paced);
    }
}

fn copy<B>(request: &Request<B>, clone_body: &impl CloneBody<B>) -> Option<Request<B>> {
    let mut copy = Request::new(clone_body.clone_body(request.body())?);
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    *copy.version_mut() = request.version();
    copy.headers_mut().clone_from(request.headers());
    copy.extensions_mut().clone_from(request.extensions());
    Some(copy)
}
