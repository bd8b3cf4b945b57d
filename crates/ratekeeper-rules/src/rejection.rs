//! Responses to rejected requests, as a file chooses them.

use bytes::Bytes;
use http::Response;
use ratekeeper::{
    RequestHead, rejection::JsonRejection, rejection::ProblemRejection, rejection::Rejection,
    rejection::RejectionReason,
};

/// A [`Rejection`] that a rule file chooses. See [`LayerSettings::apply`](crate::LayerSettings::apply).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum FileRejection<R = JsonRejection> {
    /// The application's own rejection, because the file does not choose one.
    Own(R),
    /// [`JsonRejection`].
    Json,
    /// [`ProblemRejection`].
    Problem,
}

impl<B: From<Bytes>, R: Rejection<B>> Rejection<B> for FileRejection<R> {
    fn reject(&self, head: &RequestHead<'_>, reason: &RejectionReason<'_>) -> Response<B> {
        match self {
            Self::Own(own) => own.reject(head, reason),
            Self::Json => JsonRejection.reject(head, reason),
            Self::Problem => ProblemRejection.reject(head, reason),
        }
    }
}
