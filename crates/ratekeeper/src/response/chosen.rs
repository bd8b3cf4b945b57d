//! A body that is chosen at run time.

use bytes::Bytes;
use http::Response;

use super::{Fields, JsonRejection, ProblemRejection, Refusal, Rejection};
use crate::RequestHead;

/// A [`Rejection`] that is chosen by configuration at run time, not by its type.
///
/// ```
/// use ratekeeper::{ChosenRejection, Quota, RateLimitLayer};
///
/// # let wants_problems = true;
/// let layer = RateLimitLayer::new(Quota::per_second(10)).map_rejection(|own| match wants_problems {
///     true => ChosenRejection::Problem,
///     false => ChosenRejection::Own(own),
/// });
/// # let _ = layer;
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum ChosenRejection<R = JsonRejection> {
    /// The application's own rejection.
    Own(R),
    /// [`JsonRejection`].
    Json,
    /// [`ProblemRejection`].
    Problem,
}

impl<B: From<Bytes>, R: Rejection<B>> Rejection<B> for ChosenRejection<R> {
    fn reject(&self, head: &RequestHead<'_>, refusal: &Refusal<'_>) -> Response<B> {
        match self {
            Self::Own(own) => own.reject(head, refusal),
            Self::Json => JsonRejection.reject(head, refusal),
            Self::Problem => ProblemRejection.reject(head, refusal),
        }
    }

    fn respond(&self, head: &RequestHead<'_>, refusal: &Refusal<'_>, fields: &Fields) -> Response<B> {
        match self {
            Self::Own(own) => own.respond(head, refusal, fields),
            Self::Json => JsonRejection.respond(head, refusal, fields),
            Self::Problem => ProblemRejection.respond(head, refusal, fields),
        }
    }
}
