//! The layer, and its options.

use tollgate_core::MemoryStore;
use tower_layer::Layer;

use crate::gate::{Gate, Options};
use crate::headers::{HeaderFields, IetfDraft};
use crate::limiter::Limiter;
use crate::response::{JsonRejection, ProblemRejection};
use crate::service::RateLimit;

/// Limits the requests of a service.
///
/// Made from a [`Quota`](crate::Quota), which is then for each peer address, or from a [`Limiter`].
/// See the [crate's documentation](crate) for what it does.
///
/// ```
/// use axum::{Router, routing::get};
/// use tollgate::{Quota, RateLimitLayer};
///
/// let app: Router = Router::new()
///     .route("/", get(|| async { "hello" }))
///     .layer(RateLimitLayer::new(Quota::per_second(10).burst(20)));
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct RateLimitLayer<S = MemoryStore, R = JsonRejection> {
    gate: Gate<S, R>,
}

impl<S> RateLimitLayer<S> {
    /// A layer over a limiter, or over a quota for each peer address.
    ///
    /// # Panics
    ///
    /// When it is made from a quota that makes no sense (see [`Quota::check`](crate::Quota::check)).
    pub fn new(limiter: impl Into<Limiter<S>>) -> Self {
        let gate = Gate {
            limiter: limiter.into(),
            options: Options {
                fields: HeaderFields::default(),
                charge_preflights: false,
                expose_decision: true,
            },
            rejection: JsonRejection,
        };
        Self { gate }
    }
}

impl<S, R> RateLimitLayer<S, R> {
    /// Whether `X-RateLimit-Limit`, `-Remaining` and `-Reset` are written, for the tightest rule; they are
    /// unless it is said.
    ///
    /// Of layers within each other the tightest rule of all is told. Where an inner one has denied, the response tells what
    /// that one tells, and nothing of rules that have admitted the request; so none of the three, if the inner layer does not
    /// write them. A 429 of the handler's own that has `X-RateLimit-Remaining` is left as it is, too.
    pub fn x_ratelimit_headers(mut self, on: bool) -> Self {
        self.gate.options.fields.legacy = on;
        self
    }

    /// Writes `RateLimit` and `RateLimit-Policy`, for all rules, as in this revision of the IETF's draft.
    pub fn ietf_headers(mut self, draft: IetfDraft) -> Self {
        self.gate.options.fields.ietf = Some(draft);
        self
    }

    /// Whether CORS preflights are limited; they are not unless it is said. A browser takes a preflight that
    /// is answered with 429 for a network error.
    ///
    /// Anybody can send a request that [looks like a preflight](crate::RequestHead::is_preflight), as often as they like. That is
    /// harmless where a CORS layer, or a router that knows methods, answers it. A service that does not look at the method runs
    /// its handler for it, unlimited: have it charge preflights. Where browsers have to get through, put a second layer with a
    /// generous quota and `charge_preflights(true)` around all.
    ///
    /// ```
    /// use axum::{Router, routing::any};
    /// use tollgate::{Quota, RateLimitLayer};
    ///
    /// let app: Router = Router::new()
    ///     .route("/", any(|| async { "whatever the method" }))
    ///     .layer(RateLimitLayer::new(Quota::per_second(10)))
    ///     .layer(RateLimitLayer::new(Quota::per_second(100)).charge_preflights(true));
    /// ```
    pub fn charge_preflights(mut self, on: bool) -> Self {
        self.gate.options.charge_preflights = on;
        self
    }

    /// Whether the [`Decision`](crate::Decision) is put into the extensions of the request, for handlers, and
    /// of the response, for outer layers; it is unless it is said. If it is not, and no rule is settled, handlers have no
    /// [`Limits`](crate::Limits) either.
    pub fn expose_decision(mut self, on: bool) -> Self {
        self.gate.options.expose_decision = on;
        self
    }

    /// Answers requests that do not go on in a way of the application's own. See
    /// [`Rejection`](crate::Rejection).
    pub fn rejection<T>(self, rejection: T) -> RateLimitLayer<S, T> {
        self.map_rejection(|_| rejection)
    }

    /// Answers requests that do not go on by what is made of the way it has. See
    /// [`ChosenRejection`](crate::ChosenRejection).
    pub fn map_rejection<T>(self, f: impl FnOnce(R) -> T) -> RateLimitLayer<S, T> {
        let Gate { limiter, options, rejection } = self.gate;
        RateLimitLayer { gate: Gate { limiter, options, rejection: f(rejection) } }
    }

    /// Answers requests that do not go on with a problem document (RFC 9457).
    pub fn problem_details(self) -> RateLimitLayer<S, ProblemRejection> {
        self.rejection(ProblemRejection)
    }

    /// The limiter.
    #[must_use]
    pub const fn limiter(&self) -> &Limiter<S> {
        &self.gate.limiter
    }
}

impl<I, S: Clone, R: Clone> Layer<I> for RateLimitLayer<S, R> {
    type Service = RateLimit<I, S, R>;

    fn layer(&self, inner: I) -> Self::Service {
        RateLimit::new(inner, self.gate.clone())
    }
}
