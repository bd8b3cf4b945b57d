//! Reads who wants to log in before the limits apply.

use axum::Form;
use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use crate::accounts::Name;

/// The most that is read of a body, in bytes.
pub(crate) const MAX_LENGTH: usize = 1_000;

/// The contents of a login form. There is no `Debug`, so that a password cannot get into a log.
#[derive(Clone, Deserialize)]
pub(crate) struct Credentials {
    pub(crate) account: Name,
    pub(crate) password: String,
}

/// Reads the body, and puts the credentials into the request's extensions.
///
/// Rules see only a request's head, so that they need not wait for a body, which may be large or never
/// arrive. The body of a login is small and names whom to count, so it is read first, and only once: the
/// handler finds it there as well.
///
/// A body that is not a login form is refused before it is counted: nobody has guessed anything.
pub(crate) async fn read(request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    match Form::<Credentials>::from_request(Request::from_parts(head.clone(), body), &()).await {
        Ok(Form(credentials)) => {
            head.extensions.insert(credentials);
            next.run(Request::from_parts(head, Body::empty())).await
        }
        Err(unreadable) => unreadable.into_response(),
    }
}
