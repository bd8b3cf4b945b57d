//! The layer: what is HTTP about limiting.

#[cfg(feature = "axum")]
pub(crate) mod extract;
mod future;
pub(crate) mod headers;
mod process;
pub(crate) mod rejection;
mod report;
mod service;

use ratekeeper_core::{IetfDraft, Quota};
use tower_layer::Layer;

pub use self::future::ResponseFuture;
use self::headers::HeaderFields;
use self::process::{Options, Processor};
use self::rejection::{JsonRejection, ProblemRejection};
pub use self::service::RateLimit;
use crate::error::ConfigError;
use crate::limiter::Limiter;

/// Limits the requests to a service.
///
/// A layer is made from a [`Quota`], which then applies to each peer address, or from a [`Limiter`]. See the
/// [crate's documentation](crate) for what it does.
///
/// ```
/// use axum::{Router, routing::get};
/// use ratekeeper::{Quota, RateLimitLayer};
///
/// let app: Router = Router::new()
///     .route("/", get(|| async { "hello" }))
///     .layer(RateLimitLayer::new(Quota::per_second(10).burst(20)));
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct RateLimitLayer<R = JsonRejection> {
    processor: Processor<R>,
}

impl RateLimitLayer {
    /// Creates a layer from a limiter, or from a quota for each peer address.
    ///
    /// # Panics
    ///
    /// If it is made from an invalid quota (see [`Quota::check`]). [`try_new`](Self::try_new) returns the
    /// error instead.
    #[track_caller]
    pub fn new(limiter: impl Into<Limiter>) -> Self {
        let options =
            Options { fields: HeaderFields::default(), charge_preflights: false, expose_decision: true };
        Self { processor: Processor { limiter: limiter.into(), options, rejection: JsonRejection } }
    }

    /// Creates a layer from a quota for each peer address.
    ///
    /// # Errors
    ///
    /// If the quota is invalid (see [`Quota::check`]).
    pub fn try_new(quota: Quota) -> Result<Self, ConfigError> {
        Limiter::per_peer("default", quota).map(Self::new)
    }

    /// Creates a layer from a quota for each peer address, under a rule of this name.
    ///
    /// Stacked layers need different names. Otherwise both report `default`, and clients cannot tell them
    /// apart.
    ///
    /// ```
    /// use ratekeeper::{Quota, RateLimitLayer};
    ///
    /// # fn main() -> Result<(), ratekeeper::ConfigError> {
    /// let burst = RateLimitLayer::named("burst", Quota::per_second(10))?;
    /// let sustained = RateLimitLayer::named("sustained", Quota::per_hour(1_000))?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the name or the quota is invalid.
    pub fn named(rule: impl Into<String>, quota: Quota) -> Result<Self, ConfigError> {
        Limiter::per_peer(rule, quota).map(Self::new)
    }
}

impl<R> RateLimitLayer<R> {
    /// Whether to write `X-RateLimit-Limit`, `-Remaining` and `-Reset` for the tightest rule. On by default.
    ///
    /// With nested layers, the fields report the tightest rule of all. If an inner layer has denied, the
    /// response reports what that layer reports, and nothing of rules that have admitted the request. So none
    /// of the three fields is written if the inner layer does not write them. A 429 from the handler itself
    /// that has `X-RateLimit-Remaining` is left unchanged, too.
    pub fn x_ratelimit_headers(mut self, on: bool) -> Self {
        self.processor.options.fields.legacy = on;
        self
    }

    /// Writes `RateLimit` and `RateLimit-Policy`, for all rules, as in this revision of the IETF draft.
    ///
    /// Nested layers add to each other's lists. A handler's own fields in another form, such as the dictionary
    /// of draft 7, are replaced, because both forms together are unreadable.
    pub fn ietf_headers(mut self, draft: IetfDraft) -> Self {
        self.processor.options.fields.ietf = Some(draft);
        self
    }

    /// Whether CORS preflights are limited. Off by default, because a browser takes a preflight that is
    /// answered with 429 for a network error.
    ///
    /// Anybody can send a request that [looks like a preflight](crate::RequestHead::is_preflight), as often
    /// as they like. That is harmless if a CORS layer, or a router that routes by method, answers it. A
    /// service that ignores the method runs its handler for it, unlimited: enable this there. If browsers
    /// have to get through, wrap everything in a second layer with a generous quota and
    /// `charge_preflights(true)`.
    ///
    /// ```
    /// use axum::{Router, routing::any};
    /// use ratekeeper::{Quota, RateLimitLayer};
    ///
    /// let app: Router = Router::new()
    ///     .route("/", any(|| async { "whatever the method" }))
    ///     .layer(RateLimitLayer::new(Quota::per_second(10)))
    ///     .layer(RateLimitLayer::new(Quota::per_second(100)).charge_preflights(true));
    /// ```
    pub fn charge_preflights(mut self, on: bool) -> Self {
        self.processor.options.charge_preflights = on;
        self
    }

    /// Whether to put the [`Decision`](crate::Decision) into the extensions of the request, for handlers, and
    /// of the response, for outer layers. On by default.
    ///
    /// If it is off and no rule is settled, handlers have no [`Limits`](crate::Limits) either.
    pub fn expose_decision(mut self, on: bool) -> Self {
        self.processor.options.expose_decision = on;
        self
    }

    /// Answers rejected requests with custom responses. See [`Rejection`](rejection::Rejection).
    pub fn rejection<T>(self, rejection: T) -> RateLimitLayer<T> {
        self.map_rejection(|_| rejection)
    }

    /// Replaces the rejection with one made from the current one.
    pub fn map_rejection<T>(self, f: impl FnOnce(R) -> T) -> RateLimitLayer<T> {
        let Processor { limiter, options, rejection } = self.processor;
        RateLimitLayer { processor: Processor { limiter, options, rejection: f(rejection) } }
    }

    /// Answers rejected requests with a problem document (RFC 9457).
    pub fn problem_details(self) -> RateLimitLayer<ProblemRejection> {
        self.rejection(ProblemRejection)
    }

    /// The limiter.
    #[must_use]
    pub const fn limiter(&self) -> &Limiter {
        &self.processor.limiter
    }
}

impl<S, R: Clone> Layer<S> for RateLimitLayer<R> {
    type Service = RateLimit<S, R>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit { inner, processor: self.processor.clone() }
    }
}
