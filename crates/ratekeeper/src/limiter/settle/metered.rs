//! A body that settles its cost when it has ended.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::{Limits, Measure};

pin_project! {
    /// A body whose request is settled when it has ended.
    ///
    /// When the last piece has been sent, the request costs the sum of the pieces, or what the measure
    /// returns for [the whole](Measure::total). The end is what the body reports as its end, or [its
    /// length](Self::length). If the body fails, or is dropped before its end because the client has gone
    /// away, the reservation stays charged, or the sum of the pieces if that is more.
    ///
    /// Made by [`Limits::meter`] and [`MeterLayer`](crate::meter::MeterLayer).
    pub struct Metered<B: Body, M: Measure<B::Data>> {
        #[pin]
        body: B,
        measure: M,
        bill: Bill,
        left: Option<u64>,
    }

    impl<B: Body, M: Measure<B::Data>> PinnedDrop for Metered<B, M> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            // A reader of the body need not poll again after its last piece.
            if this.body.is_end_stream() || *this.left == Some(0) {
                this.bill.settle(this.measure);
            } else {
                this.bill.leave();
            }
        }
    }
}

/// The sum of the pieces, and the limits to settle.
struct Bill {
    cost: u32,
    open: Option<(Limits, Arc<str>)>,
}

impl Bill {
    /// The body has ended.
    fn settle<D>(&mut self, measure: &mut impl Measure<D>) {
        if let Some((limits, rule)) = self.open.take() {
            // The rule exists: that was checked when this was made.
            let _ = limits.settle(&rule, measure.total(self.cost));
        }
    }

    /// The body will not end.
    fn leave(&mut self) {
        if let Some((limits, rule)) = self.open.take() {
            let _ = limits.settle_at_least(&rule, self.cost);
        }
    }
}

impl<B: Body, M: Measure<B::Data>> Metered<B, M> {
    pub(super) fn new(body: B, measure: M, open: Option<(Limits, Arc<str>)>) -> Self {
        Self { body, measure, bill: Bill { cost: 0, open }, left: None }
    }

    /// Sets the length of the body in bytes.
    ///
    /// A server that has sent as many bytes as the response's `Content-Length` announces does not poll for
    /// more, and a body that is a stream does not know that it has ended.
    ///
    /// [`MeterLayer`](crate::meter::MeterLayer) takes the length from the response.
    #[must_use]
    pub fn length(mut self, bytes: u64) -> Self {
        self.left = Some(bytes);
        self
    }

    /// The sum of the pieces so far.
    pub const fn cost(&self) -> u32 {
        self.bill.cost
    }
}

/// A body that settles nothing, for rejected requests.
impl<B: Body + From<Bytes>, M: Measure<B::Data> + Default> From<Bytes> for Metered<B, M> {
    fn from(bytes: Bytes) -> Self {
        Self::new(bytes.into(), M::default(), None)
    }
}

impl<B: Body, M: Measure<B::Data>> Body for Metered<B, M> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let mut this = self.project();
        let polled = ready!(this.body.as_mut().poll_frame(cx));
        match &polled {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    this.bill.cost = this.bill.cost.saturating_add(this.measure.measure(data));
                    *this.left = this.left.map(|left| left.saturating_sub(data.remaining() as u64));
                }
                if this.body.is_end_stream() || *this.left == Some(0) {
                    this.bill.settle(this.measure);
                }
            }
            Some(Err(_)) => this.bill.leave(),
            None => this.bill.settle(this.measure),
        }
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B: Body + fmt::Debug, M: Measure<B::Data>> fmt::Debug for Metered<B, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metered")
            .field("body", &self.body)
            .field("cost", &self.bill.cost)
            .finish_non_exhaustive()
    }
}
