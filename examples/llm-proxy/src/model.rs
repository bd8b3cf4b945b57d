//! The model: a small upstream for experiments. It repeats the prompt, a word at a time.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, Sse};
use axum::routing::post;
use axum::{Json, Router};
use futures_util::{Stream, StreamExt, stream};
use serde_json::json;

use crate::ask::Completion;

/// How long it takes for each word.
pub(crate) const PACE: Duration = Duration::from_millis(50);

pub(crate) fn app(pace: Duration) -> Router {
    Router::new().route("/v1/completions", post(complete)).with_state(pace)
}

/// To this model a word is a token. At the end it reports how many there were.
async fn complete(
    State(pace): State<Duration>,
    Json(Completion { prompt, max_tokens }): Json<Completion>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let words: Vec<_> = prompt.split_whitespace().map(str::to_owned).collect();
    let answer = words.len().min(max_tokens.map_or(usize::MAX, |tokens| tokens as usize));
    let usage = json!({
        "prompt_tokens": words.len(),
        "completion_tokens": answer,
        "total_tokens": words.len() + answer,
    });
    let texts =
        words.into_iter().take(answer).map(|word| json!({ "choices": [{ "text": format!("{word} ") }] }));
    let end = [json!({ "choices": [], "usage": usage }).to_string(), "[DONE]".to_owned()];
    let thought = stream::iter(texts).then(move |text| async move {
        tokio::time::sleep(pace).await;
        text.to_string()
    });
    Sse::new(thought.chain(stream::iter(end)).map(|data| Ok(Event::default().data(data))))
}
