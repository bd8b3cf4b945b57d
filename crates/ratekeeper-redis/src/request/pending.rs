//! Waits for replies.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use ratekeeper_core::StoreError;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Ask, Kind};
use crate::error::unavailable;

/// Makes a question, and the future of its answer.
pub(crate) fn make<T>(
    deadline: Instant,
    kind: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Kind,
) -> (Ask, PendingReply<T>) {
    let (reply, answer) = oneshot::channel();
    (Ask::new(kind(reply), deadline), PendingReply(answer))
}

/// An answer that is under way.
#[derive(Debug)]
pub(crate) struct PendingReply<T>(oneshot::Receiver<Result<T, StoreError>>);

impl<T> PendingReply<T> {
    /// Stops waiting. Returns an answer that has arrived in the meantime, as its sender cannot know that
    /// nobody listened.
    pub(crate) fn cancel(mut self) -> Option<T> {
        self.0.close();
        self.0.try_recv().ok()?.ok()
    }
}

impl<T> Future for PendingReply<T> {
    type Output = Result<T, StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(cx)
            .map(|answer| answer.unwrap_or_else(|_| Err(unavailable("the store has ended"))))
    }
}

/// Waits for all.
pub(crate) async fn all(asked: Vec<PendingReply<()>>) -> Result<(), StoreError> {
    for done in asked {
        done.await?;
    }
    Ok(())
}
