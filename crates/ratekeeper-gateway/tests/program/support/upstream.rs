//! Upstreams: one that the test scripts, and one that always answers.

use std::fmt;
use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::support::wire::{Head, Wire, soon};

/// What [`answering`] answers.
pub(crate) const HELLO: &str = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhello\n";

/// A server that the test scripts.
pub(crate) struct Upstream {
    listener: TcpListener,
    address: SocketAddr,
}

impl Upstream {
    pub(crate) async fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap()).await
    }

    pub(crate) async fn start_at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        Self { listener, address }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next connection, whenever it arrives.
    pub(crate) async fn accept(&self) -> Wire {
        Wire::new(self.listener.accept().await.unwrap().0)
    }

    /// The next connection, with the head of its first request.
    pub(crate) async fn request(&self) -> (Wire, Head) {
        let mut wire = soon(self.accept()).await;
        let head = wire.head().await;
        (wire, head)
    }
}

impl fmt::Display for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.address)
    }
}

/// A server that answers every request in the same way, and its address.
pub(crate) async fn answering(answer: &'static str) -> String {
    let upstream = Upstream::start().await;
    let url = upstream.to_string();
    tokio::spawn(async move {
        loop {
            let mut wire = upstream.accept().await;
            tokio::spawn(async move {
                while let Some(head) = wire.try_head().await {
                    wire.body(&head).await;
                    wire.send(answer).await;
                }
            });
        }
    });
    url
}
