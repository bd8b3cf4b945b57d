//! The layer.

use tower_layer::Layer;

use crate::body::CloneEmpty;
use crate::pacer::Pacer;
use crate::service::Pacing;

/// Paces the requests of an HTTP client service.
///
/// See the [crate's documentation](crate) for what it does.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct PacingLayer<C = CloneEmpty> {
    pacer: Pacer,
    clone_body: C,
}

impl PacingLayer {
    /// Paces requests by `pacer`. Only requests without a body are sent again.
    pub const fn new(pacer: Pacer) -> Self {
        Self { pacer, clone_body: CloneEmpty }
    }
}

impl<C> PacingLayer<C> {
    /// Copies bodies by `clone_body`, so that requests with a body can be sent again. See
    /// [`CloneAny`](crate::CloneAny).
    pub fn clone_body<D>(self, clone_body: D) -> PacingLayer<D> {
        PacingLayer { pacer: self.pacer, clone_body }
    }
}

impl<S, C: Clone> Layer<S> for PacingLayer<C> {
    type Service = Pacing<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        Pacing::new(inner, self.pacer.clone(), self.clone_body.clone())
    }
}
