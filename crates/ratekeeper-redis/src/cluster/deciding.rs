//! A decision in flight.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use ratekeeper_core::{Decision, StoreError};

use super::connections::Connections;
use super::multi_slot::MultiSlot;
use crate::request::Answer;
use crate::request::pending::PendingReply;

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
    asking: Option<PendingReply<Answer>>,
    /// Where to give back.
    connections: Connections,
}

impl Deciding {
    pub(crate) fn alone(asking: PendingReply<Answer>, connections: Connections) -> Self {
        Self::One(Alone { asking: Some(asking), connections })
    }
}

impl Drop for Alone {
    /// Gives back a charge whose answer nobody looked at. One that is not answered yet is given back where
    /// its answer arrives.
    fn drop(&mut self) {
        if let Some(Answer::Decided(decided)) = self.asking.take().and_then(PendingReply::cancel) {
            decided.give_back().into_iter().for_each(|ask| self.connections.put(ask));
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
                Answer::Decided(decided) => return Poll::Ready(Ok(decided.decision)),
                Answer::Split(apart) => {
                    let several = MultiSlot::divided(apart, alone.connections.clone());
                    *self = Self::MultiSlot(Box::new(several));
                }
            }
        }
    }
}
