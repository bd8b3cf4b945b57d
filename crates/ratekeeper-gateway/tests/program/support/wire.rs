//! One end of a connection, byte by byte.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// How long anything may take. Far more than it needs, since the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits, but not forever.
pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("this should not take so long")
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Wire(BufReader<TcpStream>);

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self(BufReader::new(stream))
    }

    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self::new(soon(TcpStream::connect(address)).await.unwrap())
    }

    /// The stream, without having read ahead.
    pub(crate) fn into_inner(self) -> TcpStream {
        assert_eq!(self.0.buffer(), b"");
        self.0.into_inner()
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        soon(self.0.get_mut().write_all(bytes.as_ref())).await.unwrap();
    }

    /// Sends, even to a peer that has gone.
    pub(crate) async fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        soon(self.0.get_mut().write_all(bytes)).await
    }

    /// Sends a chunk.
    pub(crate) async fn send_chunk(&mut self, text: &str) {
        self.send(format!("{:x}\r\n{text}\r\n", text.len())).await;
    }

    /// Reads the head of a message.
    pub(crate) async fn head(&mut self) -> Head {
        self.try_head().await.expect("a head")
    }

    /// Reads the head of a message; `None` if the connection is closed instead.
    pub(crate) async fn try_head(&mut self) -> Option<Head> {
        let mut text = String::new();
        while !text.ends_with("\r\n\r\n") {
            if soon(self.0.read_line(&mut text)).await.is_ok_and(|read| read > 0) {
                continue;
            }
            assert_eq!(text, "", "a whole head");
            return None;
        }
        Some(Head(text))
    }

    /// Reads this many bytes.
    pub(crate) async fn exactly(&mut self, length: usize) -> String {
        let mut bytes = vec![0; length];
        soon(self.0.read_exact(&mut bytes)).await.unwrap();
        String::from_utf8(bytes).unwrap()
    }

    /// Reads a chunk; `None` if it is the last, which trailers follow.
    pub(crate) async fn chunk(&mut self) -> Option<String> {
        let mut line = String::new();
        soon(self.0.read_line(&mut line)).await.unwrap();
        let length =
            usize::from_str_radix(line.trim_end(), 16).unwrap_or_else(|_| panic!("a length: {line:?}"));
        if length == 0 {
            return None;
        }
        let chunk = self.exactly(length).await;
        assert_eq!(self.exactly(2).await, "\r\n");
        Some(chunk)
    }

    /// Reads chunks to the last, and the trailers.
    pub(crate) async fn chunks(&mut self) -> (String, Vec<String>) {
        let mut text = String::new();
        while let Some(chunk) = self.chunk().await {
            text += &chunk;
        }
        let mut trailers = Vec::new();
        loop {
            let mut line = String::new();
            soon(self.0.read_line(&mut line)).await.unwrap();
            match line.trim_end() {
                "" => return (text, trailers),
                trailer => trailers.push(trailer.to_owned()),
            }
        }
    }

    /// Reads the body of a message with this head.
    pub(crate) async fn body(&mut self, head: &Head) -> String {
        if let Some(length) = head.field("content-length") {
            return self.exactly(length.parse().unwrap()).await;
        }
        match head.field("transfer-encoding") {
            Some("chunked") => self.chunks().await.0,
            Some(other) => panic!("{other}"),
            None => String::new(),
        }
    }

    /// Reads a response.
    pub(crate) async fn answer(&mut self) -> (Head, String) {
        let head = self.head().await;
        let body = self.body(&head).await;
        (head, body)
    }

    /// Reads some of what is there, and returns how much; 0 at the end.
    pub(crate) async fn some(&mut self) -> usize {
        let read = soon(self.0.fill_buf()).await.map_or(0, <[u8]>::len);
        self.0.consume(read);
        read
    }

    /// Reads to the end, which may be that the connection breaks off.
    pub(crate) async fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        let _ = soon(self.0.read_to_end(&mut bytes)).await;
        String::from_utf8(bytes).unwrap()
    }
}

/// The head of a message.
#[derive(Clone, Debug)]
pub(crate) struct Head(String);

impl Head {
    /// The first line.
    pub(crate) fn line(&self) -> &str {
        self.0.lines().next().unwrap()
    }

    pub(crate) fn status(&self) -> u16 {
        let status = self.line().split(' ').nth(1).and_then(|status| status.parse().ok());
        status.unwrap_or_else(|| panic!("a status: {}", self.0))
    }

    /// The lines of a field, named in lower case.
    pub(crate) fn fields(&self, name: &str) -> Vec<&str> {
        self.0.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).collect()
    }

    /// The only line of a field; `None` if it is not there.
    #[track_caller]
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        match self.fields(name)[..] {
            [] => None,
            [value] => Some(value),
            _ => panic!("several {name}: {}", self.0),
        }
    }
}
