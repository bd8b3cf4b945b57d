//! The service. Its behavior is in `call.rs`.

use crate::gate::Gate;
use crate::limiter::Limiter;
use crate::response::JsonRejection;

/// A service whose requests are limited. See [`RateLimitLayer`](crate::RateLimitLayer).
#[derive(Clone, Debug)]
pub struct RateLimit<I, R = JsonRejection> {
    pub(crate) inner: I,
    pub(crate) gate: Gate<R>,
}

impl<I, R> RateLimit<I, R> {
    pub(crate) const fn new(inner: I, gate: Gate<R>) -> Self {
        Self { inner, gate }
    }

    /// The inner service.
    pub const fn get_ref(&self) -> &I {
        &self.inner
    }

    /// The inner service.
    pub const fn get_mut(&mut self) -> &mut I {
        &mut self.inner
    }

    /// The inner service.
    pub fn into_inner(self) -> I {
        self.inner
    }

    pub(crate) const fn gate(&self) -> &Gate<R> {
        &self.gate
    }

    /// The limiter.
    #[must_use]
    pub const fn limiter(&self) -> &Limiter {
        &self.gate.limiter
    }
}
