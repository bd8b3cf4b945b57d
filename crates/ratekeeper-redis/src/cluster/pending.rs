//! Waits for answers.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use ratekeeper_core::{Decision, StoreError};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::cluster::multi_slot::MultiSlot;
use crate::error::unavailable;
use crate::request::{Ask, Kind, Told};
use crate::store::Links;

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

/// A decision that is under way.
#[derive(Debug)]
pub(crate) enum Deciding {
    One(Alone),
    MultiSlot(Box<MultiSlot>),
}

/// A request whose counters are all in one slot, or on one server.
#[derive(Debug)]
pub(crate) struct Alone {
    /// `None` once the answer was passed on.
    asking: Option<PendingReply<Told>>,
    /// Where to give back.
    links: Links,
}

impl Deciding {
    pub(crate) fn alone(asking: PendingReply<Told>, links: Links) -> Self {
        Self::One(Alone { asking: Some(asking), links })
    }
}

impl Drop for Alone {
    /// Gives back a charge whose answer nobody looked at. One that is not answered yet is given back where
    /// its answer arrives.
    fn drop(&mut self) {
        if let Some(Told::Decided(decided)) = self.asking.take().and_then(PendingReply::cancel) {
            decided.give_back().into_iter().for_each(|ask| self.links.put(ask));
        }
    }
}

impl Future for Deciding {
    type Output = Result<Decision, StoreError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let alone = match &mut *self {
                Self::One(alone) => alone,
                Self::MultiSlot(several) => return Pin::new(several).poll(cx),
            };
            // Polled again after it was ready, for which futures promise nothing.
            let Some(asking) = &mut alone.asking else { return Poll::Pending };
            let answer = std::task::ready!(Pin::new(asking).poll(cx));
            alone.asking = None;
            match answer? {
                Told::Decided(decided) => return Poll::Ready(Ok(decided.verdict.into())),
                Told::Apart(apart) => {
                    let several = MultiSlot::divided(apart, alone.links.clone());
                    *self = Self::MultiSlot(Box::new(several));
                }
            }
        }
    }
}
