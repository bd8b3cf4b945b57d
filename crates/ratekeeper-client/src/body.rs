//! Copies of request bodies, for retries.

use http_body::Body;

/// Copies the body of a request, so that the request can be sent again.
pub trait CloneBody<B> {
    /// A copy, or `None` if this body cannot be copied. Such a request is sent once.
    fn clone_body(&self, body: &B) -> Option<B>;
}

/// Copies empty bodies only, which is possible for any type of body that has a default.
#[derive(Clone, Copy, Debug, Default)]
pub struct CloneEmpty;

impl<B: Body + Default> CloneBody<B> for CloneEmpty {
    fn clone_body(&self, body: &B) -> Option<B> {
        body.is_end_stream().then(B::default)
    }
}

/// Copies any body of a type that can be cloned, such as `http_body_util::Full`.
#[derive(Clone, Copy, Debug, Default)]
pub struct CloneAny;

impl<B: Clone> CloneBody<B> for CloneAny {
    fn clone_body(&self, body: &B) -> Option<B> {
        Some(body.clone())
    }
}

impl<B, F: Fn(&B) -> Option<B>> CloneBody<B> for F {
    fn clone_body(&self, body: &B) -> Option<B> {
        self(body)
    }
}
