//! A body that does not stand still forever.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};

use super::{Progress, Upload};

type BoxError = Box<dyn Error + Send + Sync>;

/// Which body of an exchange it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The request's.
    Up,
    /// The response's.
    Down,
}

/// A body has stood still for too long, or the exchange has taken too long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stalled;

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("this has taken too long")
    }
}

impl Error for Stalled {}

pin_project! {
    /// A body that fails when nothing has moved in either direction for too long.
    ///
    /// Time counts only while it is being polled: a slow receiver is no reason to give up on the sender.
    #[derive(Debug)]
    pub(crate) struct Timed<B> {
        #[pin]
        body: B,
        direction: Direction,
        progress: Arc<Progress>,
        // Since when it has been waited for.
        since: Option<Instant>,
        // Most bodies are ready when polled, and need no timer.
        alarm: Option<Pin<Box<Sleep>>>,
    }

    impl<B> PinnedDrop for Timed<B> {
        fn drop(this: Pin<&mut Self>) {
            // Once it is dropped nobody wants more of it, so nobody waits for the client.
            if this.direction == Direction::Up {
                this.progress.set_upload(Upload::Delivered);
            }
        }
    }
}

impl<B> Timed<B> {
    pub(crate) fn new(body: B, direction: Direction, progress: Arc<Progress>) -> Self {
        Self { body, direction, progress, since: None, alarm: None }
    }
}

impl<B> Body for Timed<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.project();
        let upload = |upload| {
            if *this.direction == Direction::Up {
                this.progress.set_upload(upload);
            }
        };
        if let Poll::Ready(frame) = this.body.poll_frame(cx) {
            *this.since = None;
            this.progress.moved();
            upload(if matches!(frame, Some(Err(_))) { Upload::Broken } else { Upload::Delivered });
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        upload(Upload::Awaited);
        let since = *this.since.get_or_insert_with(Instant::now);
        let until = || this.progress.idle_until(since);
        let alarm = this.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until())));
        loop {
            // An earlier setting is at most too early, since deadlines only move forward.
            ready!(alarm.as_mut().poll(cx));
            let until = until();
            if until <= Instant::now() {
                upload(Upload::Stalled);
                return Poll::Ready(Some(Err(Stalled.into())));
            }
            alarm.as_mut().reset(until);
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
