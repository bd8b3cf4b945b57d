//! The response, once the fate of the request is known.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::response::Rejection;
use crate::told::{More, One, Told};
use crate::waiting::{Passed, Waiting};

pin_project! {
    /// The response of a [`RateLimit`](crate::RateLimit) service.
    pub struct ResponseFuture<I, R, A, B>
    where
        I: Service<Request<A>>,
    {
        #[pin]
        state: State<I, R, A, B>,
    }
}

pin_project! {
    #[project = StateProjected]
    enum State<I, R, A, B>
    where
        I: Service<Request<A>>,
    {
        // The request was forwarded, and one rule has something to report. This is a separate variant because
        // most requests are in it: then nothing else is checked when the future is polled or dropped.
        Forwarding { #[pin] response: I::Future, one: One },
        // The request was forwarded, and there is more to report, or nothing.
        ForwardingWith { #[pin] response: I::Future, more: Option<Box<More>> },
        // The request has been answered.
        Answered { response: Option<Response<B>> },
        // It is not yet known what happens to the request. Boxed, because this is several times as large as
        // the other variants and the future is moved for every request, while few requests wait, or only
        // those that ask a server.
        Waiting { waiting: Pin<Box<Waiting<I, R, A>>> },
    }
}

impl<I, R, A, B> ResponseFuture<I, R, A, B>
where
    I: Service<Request<A>>,
{
    #[inline(always)]
    pub(crate) const fn forward_one(response: I::Future, one: One) -> Self {
        Self { state: State::Forwarding { response, one } }
    }

    #[inline]
    pub(crate) fn forward(response: I::Future, told: Told) -> Self {
        Self { state: State::forward(response, told) }
    }

    pub(crate) const fn answer(response: Response<B>) -> Self {
        Self { state: State::Answered { response: Some(response) } }
    }

    pub(crate) fn wait(waiting: Waiting<I, R, A>) -> Self {
        Self { state: State::Waiting { waiting: Box::pin(waiting) } }
    }
}

impl<I, R, A, B> State<I, R, A, B>
where
    I: Service<Request<A>>,
{
    #[inline]
    fn forward(response: I::Future, told: Told) -> Self {
        match told {
            Told::One(one) => Self::Forwarding { response, one },
            Told::More(more) => Self::ForwardingWith { response, more: Some(more) },
            Told::Nothing => Self::ForwardingWith { response, more: None },
        }
    }
}

impl<I, R, A, B> Future for ResponseFuture<I, R, A, B>
where
    I: Service<Request<A>, Response = Response<B>> + Clone,
    R: Rejection<B> + Clone,
{
    type Output = Result<I::Response, I::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        match state.as_mut().project() {
            StateProjected::Forwarding { response, one } => poll_and_tell(response, cx, |to| one.write(to)),
            StateProjected::ForwardingWith { response, more } => {
                poll_and_tell(response, cx, |to| tell_more(more, to))
            }
            _ => state.poll_others(cx),
        }
    }
}

/// Polls for a response, and writes what is to be reported once it is there.
#[inline(always)]
fn poll_and_tell<F, B, E>(
    response: Pin<&mut F>,
    cx: &mut Context<'_>,
    write: impl FnOnce(&mut Response<B>),
) -> Poll<F::Output>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    // A response is large, so it is modified in place.
    let mut polled = response.poll(cx);
    if let Poll::Ready(Ok(response)) = &mut polled {
        write(response);
    }
    polled
}

#[inline(always)]
fn tell_more<B>(more: &mut Option<Box<More>>, response: &mut Response<B>) {
    if let Some(more) = more.take() {
        more.write(response);
    }
}

impl<I, R, A, B> State<I, R, A, B>
where
    I: Service<Request<A>, Response = Response<B>> + Clone,
    R: Rejection<B> + Clone,
{
    /// Polls a request that was not forwarded immediately.
    #[inline(never)]
    fn poll_others(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Response<B>, I::Error>> {
        loop {
            let next = match self.as_mut().project() {
                StateProjected::Forwarding { response, one } => {
                    return poll_and_tell(response, cx, |to| one.write(to));
                }
                StateProjected::ForwardingWith { response, more } => {
                    return poll_and_tell(response, cx, |to| tell_more(more, to));
                }
                StateProjected::Answered { response } => {
                    // When polled again after completion, it stays pending forever.
                    return response.take().map_or(Poll::Pending, |response| Poll::Ready(Ok(response)));
                }
                StateProjected::Waiting { waiting } => match ready!(waiting.as_mut().poll_passed(cx)) {
                    Passed::Forward { mut service, request, told } => {
                        Self::forward(service.get_mut().call(request), told)
                    }
                    Passed::Answer(response) => Self::Answered { response: Some(response) },
                },
            };
            self.set(next);
        }
    }
}

impl<I, R, A, B> fmt::Debug for ResponseFuture<I, R, A, B>
where
    I: Service<Request<A>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Forwarding { .. } | State::ForwardingWith { .. } => "ResponseFuture(forwarding)",
            State::Answered { .. } => "ResponseFuture(answered)",
            State::Waiting { .. } => "ResponseFuture(waiting)",
        })
    }
}
