//! One connection, from joining to closing.

use axum::extract::ws::{Message, WebSocket};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{Receiver, Sender};

use crate::event::Event;
use crate::speaker::Speaker;

/// Sends the client what others say, and broadcasts what the client sends, as often as it may.
///
/// One task does both, in turns. So a client that keeps sending without reading the answers slows down only
/// itself: while an answer cannot be sent, nothing more is read.
pub(crate) async fn run(
    mut socket: WebSocket,
    speaker: Speaker,
    events: Sender<Event>,
    mut heard: Receiver<Event>,
) {
    let mut event = welcome(&speaker).await;
    loop {
        if socket.send(event.to_message()).await.is_err() {
            return;
        }
        event = loop {
            tokio::select! {
                received = socket.recv() => match received {
                    Some(Ok(Message::Text(text))) => break say(&speaker, text.as_str(), &events).await,
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                    // Pings are answered automatically, and binary messages cannot be said.
                    Some(Ok(_)) => {}
                },
                said = heard.recv() => match said {
                    Ok(said) => break said,
                    // A slow client misses messages, and hears what comes next.
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return,
                },
            }
        };
    }
}

async fn welcome(speaker: &Speaker) -> Event {
    match speaker.peek().await {
        Ok(decision) => Event::welcome(&decision),
        Err(error) => Event::failed(&error),
    }
}

/// Broadcasts the text if the speaker may speak. If not, the connection stays open, and the speaker is told
/// how long to wait.
async fn say(speaker: &Speaker, text: &str, events: &Sender<Event>) -> Event {
    match speaker.charge().await {
        Ok(decision) if decision.is_admitted() => {
            // Sending fails only if this connection is being closed.
            let _ = events.send(Event::said(speaker.user(), text));
            Event::sent(&decision)
        }
        Ok(decision) => Event::wait(&decision),
        Err(error) => Event::failed(&error),
    }
}
