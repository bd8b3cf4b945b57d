//! An open connection to a server, driven by the task that uses it.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt, select_ok};
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, RedisError, Value};
use tokio::net::{TcpStream, lookup_host};

use super::connect::{open, without_response_timeout};
use crate::batch::in_flight::Commands;

/// How often to look whether a connection that drives itself was closed.
const CLOSED_CHECK: Duration = Duration::from_millis(100);

/// An open connection.
///
/// The task that sends a batch also writes it to the socket and reads its replies. With a task of its own for
/// the socket, as the client would spawn it, each request would wait for two more tasks to be scheduled. It
/// is also how the task learns that an idle connection was closed.
pub(crate) struct Socket {
    connection: MultiplexedConnection,
    /// Reads and writes; completes when the connection is closed.
    driver: BoxFuture<'static, ()>,
    closed: bool,
    pending: FuturesUnordered<BoxFuture<'static, Replies>>,
}

/// The replies to a batch, and the number of the batch.
type Replies = (usize, Result<Vec<Value>, RedisError>);

/// What happens on a connection.
pub(crate) enum Event {
    /// A batch is answered, or has failed.
    Replies(usize, Result<Vec<Value>, RedisError>),
    /// The connection is closed, and nothing is in flight.
    Closed,
}

impl Socket {
    /// Connects. Plain TCP and Unix sockets are driven here; TLS and unusual TCP options are left to the
    /// client, whose connections drive themselves.
    pub(crate) async fn open(client: &Client, timeout: Duration) -> Result<Self, RedisError> {
        let info = client.get_connection_info();
        match info.addr() {
            ConnectionAddr::Tcp(host, port) if has_usual_options(info) => {
                let addresses = lookup_host((host.as_str(), *port)).await?;
                let attempts = addresses.map(|address| TcpStream::connect(address).boxed());
                let attempts: Vec<_> = attempts.collect();
                if attempts.is_empty() {
                    return Err(std::io::Error::from(std::io::ErrorKind::NotFound).into());
                }
                let (stream, _) = select_ok(attempts).await?;
                // A batch is written at once, so there is nothing to coalesce.
                stream.set_nodelay(true)?;
                Self::driven(info, stream).await
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => {
                Self::driven(info, tokio::net::UnixStream::connect(path).await?).await
            }
            _ => {
                let connection = open(client, timeout).await?;
                let mut watched = connection.clone();
                let driver = async move {
                    while !is_closed(&mut watched) {
                        tokio::time::sleep(CLOSED_CHECK).await;
                    }
                };
                Ok(Self::new(connection, driver))
            }
        }
    }

    async fn driven<S>(info: &ConnectionInfo, stream: S) -> Result<Self, RedisError>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let config: AsyncConnectionConfig = without_response_timeout();
        let opened = MultiplexedConnection::new_with_config(info.redis_settings(), stream, config).await;
        let (connection, driver) = opened?;
        Ok(Self::new(connection, driver))
    }

    fn new(connection: MultiplexedConnection, driver: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { connection, driver: driver.boxed(), closed: false, pending: FuturesUnordered::new() }
    }

    /// Does something with the connection while nothing is in flight.
    pub(crate) async fn run<T>(&mut self, work: impl AsyncFnOnce(&mut MultiplexedConnection) -> T) -> T {
        let mut connection = self.connection.clone();
        let mut work = pin!(work(&mut connection));
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(done),
            Poll::Pending => {
                self.drive(cx);
                Poll::Pending
            }
        })
        .await
    }

    /// Sends the batch with this number.
    pub(crate) fn send(&mut self, batch: usize, commands: Commands) {
        let mut connection = self.connection.clone();
        self.pending.push(async move { (batch, commands.send(&mut connection).await) }.boxed());
    }

    /// Waits for the next event.
    pub(crate) async fn next(&mut self) -> Event {
        poll_fn(|cx| {
            // A batch that was just sent gets to the driver when it is polled.
            if let Poll::Ready(Some((batch, replies))) = self.pending.poll_next_unpin(cx) {
                return Poll::Ready(Event::Replies(batch, replies));
            }
            self.drive(cx);
            match self.pending.poll_next_unpin(cx) {
                Poll::Ready(Some((batch, replies))) => Poll::Ready(Event::Replies(batch, replies)),
                Poll::Ready(None) if self.closed => Poll::Ready(Event::Closed),
                _ => Poll::Pending,
            }
        })
        .await
    }

    /// Whether the connection is known to be closed.
    pub(crate) async fn is_closed(&mut self) -> bool {
        poll_fn(|cx| {
            self.drive(cx);
            Poll::Ready(self.closed)
        })
        .await
    }

    fn drive(&mut self, cx: &mut Context<'_>) {
        self.closed = self.closed || Pin::new(&mut self.driver).poll(cx).is_ready();
    }
}

/// Whether there is nothing that only the client can set. (How long a closed connection lingers does not
/// matter here.)
fn has_usual_options(info: &ConnectionInfo) -> bool {
    let settings = info.tcp_settings();
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    if settings.user_timeout().is_some() {
        return false;
    }
    settings.keepalive().is_none()
}

/// Whether a connection that drives itself is known to be closed. This sends nothing: a command that is given
/// up immediately is not sent, and the task that reads the connection accepts no commands once it has reached
/// the end.
fn is_closed(connection: &mut MultiplexedConnection) -> bool {
    let ping = redis::cmd("PING");
    matches!(connection.send_packed_command(&ping).now_or_never(), Some(Err(_)))
}
