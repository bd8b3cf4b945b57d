//! The body of the gateway's responses.

use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use pin_project_lite::pin_project;

use crate::activity::Served;
use crate::timeouts::Timed;

pin_project! {
    /// The body of a response: the upstream's, streamed, or one of the gateway's own.
    #[derive(Debug)]
    pub(crate) struct Body {
        #[pin]
        kind: Kind,
        // Kept for as long as the response is being sent.
        served: Option<Served>,
    }
}

pin_project! {
    #[project = KindProjection]
    #[derive(Debug)]
    enum Kind {
        Own { #[pin] body: Full<Bytes> },
        Upstream { #[pin] body: Timed<Incoming> },
    }
}

impl Body {
    /// Marks a request as being served until this body has been sent.
    pub(crate) fn serving(self, served: Served) -> Self {
        Self { served: Some(served), ..self }
    }
}

impl Default for Body {
    fn default() -> Self {
        Bytes::new().into()
    }
}

// For the layer's rejections.
impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self { kind: Kind::Own { body: Full::new(bytes) }, served: None }
    }
}

impl From<Timed<Incoming>> for Body {
    fn from(body: Timed<Incoming>) -> Self {
        Self { kind: Kind::Upstream { body }, served: None }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.project();
        let frame = match this.kind.project() {
            KindProjection::Own { body } => body.poll_frame(cx).map_err(|never| match never {}),
            KindProjection::Upstream { body } => body.poll_frame(cx),
        };
        if let Some(served) = this.served {
            served.asked(frame.is_pending());
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Own { body } => body.is_end_stream(),
            Kind::Upstream { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Own { body } => body.size_hint(),
            Kind::Upstream { body } => body.size_hint(),
        }
    }
}
