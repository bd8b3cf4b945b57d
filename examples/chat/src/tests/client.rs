//! A client of the chat, for its tests.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

/// How long an event may take to arrive. Far more than it needs, since the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection to the chat.
pub(crate) struct Client {
    socket: WebSocketStream<TcpStream>,
}

impl Client {
    /// Joins, and returns the welcome; or the status with which it was refused.
    pub(crate) async fn try_join(address: SocketAddr, user: &str) -> Result<(Self, Value), u16> {
        let stream = TcpStream::connect(address).await.unwrap();
        match client_async(format!("ws://{address}/ws?user={user}"), stream).await {
            Ok((socket, _)) => {
                let mut client = Self { socket };
                let welcome = client.next().await;
                assert_eq!(welcome["event"], "welcome", "{welcome}");
                Ok((client, welcome))
            }
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) async fn join(address: SocketAddr, user: &str) -> Self {
        Self::try_join(address, user).await.unwrap_or_else(|status| panic!("refused with {status}")).0
    }

    /// Sends a message.
    pub(crate) async fn say(&mut self, text: impl Into<String>) {
        self.send(Message::text(text.into())).await;
    }

    pub(crate) async fn send(&mut self, message: Message) {
        self.socket.send(message).await.unwrap();
    }

    /// The server's next event.
    pub(crate) async fn next(&mut self) -> Value {
        let event = timeout(PATIENCE, async {
            loop {
                let message = self.socket.next().await.expect("the connection is open").unwrap();
                if let Message::Text(text) = message {
                    return serde_json::from_str(&text).unwrap();
                }
            }
        });
        event.await.expect("an event in time")
    }

    /// The server's answer to this client's message.
    pub(crate) async fn answer(&mut self) -> Value {
        self.next_but(|event| event["event"] == "said").await
    }

    /// The next message.
    pub(crate) async fn heard(&mut self) -> String {
        let said = self.next_but(|event| event["event"] != "said").await;
        format!("{}: {}", said["user"].as_str().unwrap(), said["text"].as_str().unwrap())
    }

    async fn next_but(&mut self, skip: impl Fn(&Value) -> bool) -> Value {
        loop {
            let event = self.next().await;
            if !skip(&event) {
                return event;
            }
        }
    }

    /// Sends a message, and returns the answer.
    pub(crate) async fn ask(&mut self, text: &str) -> Value {
        self.say(text).await;
        self.answer().await
    }

    /// Whether the server has closed the connection.
    pub(crate) async fn is_closed(&mut self) -> bool {
        let end = timeout(PATIENCE, async {
            while let Some(Ok(message)) = self.socket.next().await {
                if message.is_close() {
                    return;
                }
            }
        });
        end.await.is_ok()
    }
}
