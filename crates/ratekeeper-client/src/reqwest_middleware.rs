//! A middleware for `reqwest-middleware`.

use http::{Extensions, HeaderMap, StatusCode, Uri};
use reqwest::{Request, Response};
use reqwest_middleware::{Middleware, Next};

use crate::call::{Exchange, Paced, run};
use crate::error::Error;
use crate::pacer::{Pacer, Target};

/// Paces the requests of a `reqwest-middleware` client.
///
/// A request that is not sent fails with a middleware error, from which [`Error`] can be downcast.
///
/// ```
/// use ratekeeper_client::{Pacer, PacingMiddleware};
///
/// let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new())
///     .with(PacingMiddleware::new(Pacer::new()))
///     .build();
/// ```
#[derive(Clone, Debug, Default)]
pub struct PacingMiddleware {
    pacer: Pacer,
}

impl PacingMiddleware {
    /// Paces requests by `pacer`.
    #[must_use]
    pub const fn new(pacer: Pacer) -> Self {
        Self { pacer }
    }
}

#[async_trait::async_trait]
impl Middleware for PacingMiddleware {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        // An address that is not a `Uri` has no budget of its own.
        let uri = request.url().as_str().parse::<Uri>().unwrap_or_default();
        let queue = self.pacer.queue(&Target::new(request.method(), &uri, request.headers()));
        let is_repeatable = self.pacer.options().retries.allows(request.method());
        let exchange = MiddlewareCall { request: Some(request), extensions, next };
        run(&self.pacer, queue, is_repeatable, exchange).await.map_err(|error| match error {
            Error::Inner(error) => error,
            Error::WaitTooLong { wait } => {
                reqwest_middleware::Error::middleware(Error::<std::convert::Infallible>::WaitTooLong { wait })
            }
            Error::QueueFull => {
                reqwest_middleware::Error::middleware(Error::<std::convert::Infallible>::QueueFull)
            }
        })
    }
}

struct MiddlewareCall<'a> {
    /// The request to send, or a copy of the one that was sent.
    request: Option<Request>,
    extensions: &'a mut Extensions,
    next: Next<'a>,
}

impl Exchange for MiddlewareCall<'_> {
    type Response = Response;
    type Error = reqwest_middleware::Error;

    async fn send(&mut self, keep: bool) -> reqwest_middleware::Result<Response> {
        let Some(request) = self.request.take() else {
            unreachable!("a request is sent again only if there is a copy")
        };
        self.request = if keep { request.try_clone() } else { None };
        self.next.clone().run(request, self.extensions).await
    }

    fn can_repeat(&self) -> bool {
        self.request.is_some()
    }

    fn head(response: &Response) -> (StatusCode, &HeaderMap) {
        (response.status(), response.headers())
    }

    fn expose(response: &mut Response, paced: Paced) {
        response.extensions_mut().insert(paced);
    }
}
