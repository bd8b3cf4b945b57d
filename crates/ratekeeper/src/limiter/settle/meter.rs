//! A layer that measures the bodies of responses.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::{Limits, Metered};

/// Measures what a piece of a body costs. Implemented by closures and by [`ByteCount`].
pub trait Measure<D> {
    /// What this piece adds.
    fn measure(&mut self, data: &D) -> u32;

    /// What the whole body costs, now that it has ended. By default the sum of its pieces.
    ///
    /// Override it for bodies that report at the end what they have cost. Then what their pieces add is an
    /// estimate, used for bodies that do not end.
    ///
    /// ```
    /// use ratekeeper::meter::Measure;
    ///
    /// #[derive(Clone, Default)]
    /// struct Usage(Option<u32>);
    ///
    /// impl Measure<bytes::Bytes> for Usage {
    ///     fn measure(&mut self, piece: &bytes::Bytes) -> u32 {
    ///         let told = piece.strip_prefix(b"usage=").and_then(|text| std::str::from_utf8(text).ok());
    ///         self.0 = told.and_then(|text| text.parse().ok());
    ///         1
    ///     }
    ///
    ///     fn total(&mut self, sum: u32) -> u32 {
    ///         self.0.unwrap_or(sum)
    ///     }
    /// }
    /// ```
    fn total(&mut self, sum: u32) -> u32 {
        sum
    }

    /// What the response to a HEAD request costs, whose body is not sent and so cannot be measured.
    ///
    /// By default `None`: what was reserved stays charged. The handler of such a request mostly does the same
    /// work as for a GET, and if it cost nothing, HEAD would be a way around the limit.
    fn head(&mut self) -> Option<u32> {
        None
    }
}

impl<D, F: FnMut(&D) -> u32> Measure<D> for F {
    fn measure(&mut self, data: &D) -> u32 {
        self(data)
    }
}

/// Every byte that is sent costs one. The response to a HEAD request costs nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByteCount;

impl<D: Buf> Measure<D> for ByteCount {
    fn measure(&mut self, data: &D) -> u32 {
        u32::try_from(data.remaining()).unwrap_or(u32::MAX)
    }

    fn head(&mut self) -> Option<u32> {
        Some(0)
    }
}

/// Settles a rule by the bodies of responses.
///
/// Each piece adds what the measure returns, and when a body has ended, its request costs the sum. See
/// [`Metered`] for what happens if it does not end, and [`Measure::head`] for HEAD requests.
///
/// It goes inside the [`RateLimitLayer`](crate::RateLimitLayer), and its rule has to be [settled in
/// handlers](crate::Rule::settle_in_handler). It is a separate layer because it changes the type of the body,
/// which most services do not need.
///
/// ```
/// use axum::{Router, routing::get};
/// use ratekeeper::{meter::ByteCount, Limiter, MINUTE, meter::MeterLayer, Quota, RateLimitLayer, Rule};
///
/// # fn main() -> Result<(), ratekeeper::ConfigError> {
/// // A megabyte a minute. The length of a response is not known beforehand, so 10 kB are reserved.
/// let bytes = Rule::new("bytes", Quota::token_bucket(1_000_000, MINUTE)).cost(10_000).settle_in_handler();
/// let app: Router = Router::new()
///     .route("/", get(|| async { "hello" }))
///     .layer(MeterLayer::new("bytes", ByteCount))
///     .layer(RateLimitLayer::new(Limiter::builder().rule(bytes).build()?));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct MeterLayer<M> {
    rule: Arc<str>,
    measure: M,
}

impl<M> MeterLayer<M> {
    /// Measures bodies for the rule of this name. Each body gets a clone of the measure.
    ///
    /// Without a limiter around it, or with one that does not have this rule, bodies pass unchanged.
    pub fn new(rule: impl Into<Arc<str>>, measure: M) -> Self {
        Self { rule: rule.into(), measure }
    }
}

impl<I, M: Clone> Layer<I> for MeterLayer<M> {
    type Service = Meter<I, M>;

    fn layer(&self, inner: I) -> Self::Service {
        Meter { inner, rule: Arc::clone(&self.rule), measure: self.measure.clone() }
    }
}

/// A service whose bodies are measured. See [`MeterLayer`].
#[derive(Clone, Debug)]
pub struct Meter<I, M> {
    inner: I,
    rule: Arc<str>,
    measure: M,
}

impl<I, M, A, B> Service<Request<A>> for Meter<I, M>
where
    I: Service<Request<A>, Response = Response<B>>,
    B: Body,
    M: Measure<B::Data> + Clone,
{
    type Response = Response<Metered<B, M>>;
    type Error = I::Error;
    type Future = MeterFuture<I::Future, M>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        let limits = request.extensions().get::<Limits>();
        let limits = limits.filter(|limits| limits.charged(&self.rule).is_ok()).cloned();
        let open = limits.map(|limits| (limits, Arc::clone(&self.rule)));
        let is_head = request.method() == Method::HEAD;
        MeterFuture {
            response: self.inner.call(request),
            metered: Some((self.measure.clone(), open)),
            is_head,
        }
    }
}

pin_project! {
    /// The response of a [`Meter`] service.
    #[derive(Debug)]
    pub struct MeterFuture<F, M> {
        #[pin]
        response: F,
        metered: Option<(M, Option<(Limits, Arc<str>)>)>,
        is_head: bool,
    }
}

/// The length of the body that is sent with a response, if known.
fn length<B>(response: &Response<B>) -> Option<u64> {
    // These responses have no body, whatever length they announce.
    let status = response.status();
    if status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED {
        return Some(0);
    }
    response.headers().get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

impl<F, M, B, E> Future for MeterFuture<F, M>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
    M: Measure<B::Data>,
{
    type Output = Result<Response<Metered<B, M>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.response.poll(cx))?;
        // When polled again after completion, it stays pending forever.
        let Some((mut measure, mut open)) = this.metered.take() else { return Poll::Pending };
        if let Some((limits, rule)) = open.take_if(|_| *this.is_head) {
            // The rule exists: that was checked when the request came.
            let _ = measure.head().map(|cost| limits.settle(&rule, cost));
        }
        let length = length(&response);
        Poll::Ready(Ok(response.map(|body| {
            let metered = Metered::new(body, measure, open);
            match length {
                Some(bytes) => metered.length(bytes),
                None => metered,
            }
        })))
    }
}
