//! Reads what is asked, and what it may cost, before the limits apply.

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The longest request that is read, in bytes.
pub(crate) const MAX_LENGTH: usize = 4_000;

/// The longest answer that can be requested, in tokens. With the longest prompt it is what a key has for a
/// minute, so that nothing can be requested that is never admitted.
pub(crate) const MAX_TOKENS: u32 = 1_000;

/// How long an answer may be if the request does not say.
const UNSAID_TOKENS: u32 = 100;

/// The body of a request.
#[derive(Deserialize)]
pub(crate) struct Completion {
    pub(crate) prompt: String,
    pub(crate) max_tokens: Option<u32>,
}

/// A request for the model.
#[derive(Clone)]
pub(crate) struct Ask {
    /// The body as received, except that it always bounds the answer's length for the model: what is not
    /// bounded cannot be reserved, and whatever exceeds what the bucket can owe would be free.
    pub(crate) body: Bytes,
    /// How long the prompt may be, in tokens.
    pub(crate) prompt: u32,
    /// How long the answer may be.
    pub(crate) answer: u32,
}

impl Ask {
    fn new(body: &Bytes) -> Result<Self, String> {
        let mut asked: Map<String, Value> =
            serde_json::from_slice(body).map_err(|error| unreadable(&error))?;
        let Completion { prompt, max_tokens } =
            Completion::deserialize(&asked).map_err(|error| unreadable(&error))?;
        let answer = max_tokens.unwrap_or(UNSAID_TOKENS);
        if answer > MAX_TOKENS {
            return Err(format!("max_tokens is above {MAX_TOKENS}\n"));
        }
        asked.insert("max_tokens".to_owned(), answer.into());
        // Roughly four bytes to a token. Only the model knows, and reports it afterwards.
        let prompt = prompt.len().div_ceil(4).try_into().unwrap_or(u32::MAX);
        Ok(Self { body: Value::Object(asked).to_string().into(), prompt, answer })
    }

    /// The number of tokens that are reserved for it.
    pub(crate) fn tokens(&self) -> u32 {
        self.prompt.saturating_add(self.answer)
    }
}

fn unreadable(error: &serde_json::Error) -> String {
    format!("this is not a request: {error}\n")
}

/// Reads the body, and puts what is asked into the request's extensions.
///
/// Rules see only a request's head, so that they need not wait for a body. The cost depends on the body, so
/// it is read first, and only once: the handler finds it there as well.
pub(crate) async fn read(request: Request, next: Next) -> Response {
    let (mut head, body) = request.into_parts();
    let body = match Bytes::from_request(Request::from_parts(head.clone(), body), &()).await {
        Ok(body) => body,
        Err(rejection) => return rejection.into_response(),
    };
    match Ask::new(&body) {
        Ok(ask) => {
            head.extensions.insert(ask);
            next.run(Request::from_parts(head, Body::empty())).await
        }
        Err(why) => (StatusCode::BAD_REQUEST, why).into_response(),
    }
}
