//! Authentication by API key.

use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// Stands for a table of hashed keys.
const KEYS: [&str; 2] = ["alice-key", "bob-key"];

/// Refuses requests without a known key: if keys could be made up, so could budgets.
///
/// This runs before anything is counted. Real keys are long and random, so they cannot be guessed. A request
/// with two keys is refused, too: the key checked here has to be the one that is counted.
pub(crate) async fn check(request: Request, next: Next) -> Response {
    let mut values = request.headers().get_all(header::AUTHORIZATION).iter();
    let only = values.next().filter(|_| values.next().is_none()).and_then(|value| value.to_str().ok());
    if only.and_then(|value| value.strip_prefix("Bearer ")).is_some_and(|key| KEYS.contains(&key)) {
        next.run(request).await
    } else {
        (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], "who are you?\n").into_response()
    }
}
