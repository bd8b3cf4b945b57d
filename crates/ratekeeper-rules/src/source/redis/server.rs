//! Connections to the server that holds the key.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ErrorKind, FromRedisValue, ProtocolVersion, PushInfo,
    PushKind, RedisError, RedisResult,
};
use tokio::sync::watch;

/// How often a cluster may redirect to another node.
const REDIRECTIONS: usize = 4;

/// How to reach the server, and how long that may take.
#[derive(Clone, Debug)]
pub(super) struct Server {
    client: Client,
    timeout: Duration,
}

/// A connection that hears what is published.
pub(super) struct Link {
    connection: MultiplexedConnection,
    heard: watch::Receiver<Heard>,
}

/// What a connection has heard so far.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    messages: u64,
    is_lost: bool,
}

impl Server {
    /// A server with this timeout for connecting and answering. It has to speak RESP3, in which messages and
    /// answers share one connection, and a refused subscription is reported.
    pub(super) fn new(client: &Client, timeout: Duration) -> RedisResult<Self> {
        let info = client.get_connection_info().clone();
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        Ok(Self { client: Client::open(info.set_redis_settings(settings))?, timeout })
    }

    pub(super) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Connects, and subscribes to a channel. In a cluster every node delivers its messages.
    pub(super) async fn listen(&self, channel: &str) -> RedisResult<Link> {
        let (tell, heard) = watch::channel(Heard::default());
        let config = self.config().set_push_sender(move |info: PushInfo| {
            // The confirmation of the subscription arrives here too, and is not a change.
            tell.send_if_modified(|heard| match info.kind {
                PushKind::Disconnection => {
                    heard.is_lost = true;
                    true
                }
                PushKind::Message => {
                    heard.messages += 1;
                    true
                }
                _ => false,
            });
            Ok::<_, ()>(())
        });
        self.in_time(async {
            let mut connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
            connection.subscribe(channel).await?;
            Ok(Link { connection, heard })
        })
        .await
    }

    /// Sends a command over a separate connection.
    pub(super) async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        self.in_time(self.follow(self.client.clone(), command)).await
    }

    /// Sends a command over an existing connection, unless the key is on another node of a cluster.
    pub(super) async fn ask_over<T: FromRedisValue>(&self, link: &mut Link, command: &Cmd) -> RedisResult<T> {
        self.in_time(async {
            match command.query_async(&mut link.connection).await {
                Err(error) if error.redirect_node().is_some() => {
                    self.follow(elsewhere(&self.client, &error)?, command).await
                }
                answer => answer,
            }
        })
        .await
    }

    async fn follow<T: FromRedisValue>(&self, mut client: Client, command: &Cmd) -> RedisResult<T> {
        let mut redirections = 0;
        loop {
            let mut connection = client.get_multiplexed_async_connection_with_config(&self.config()).await?;
            match command.query_async(&mut connection).await {
                Err(error) if error.redirect_node().is_some() && redirections < REDIRECTIONS => {
                    redirections += 1;
                    client = elsewhere(&client, &error)?;
                }
                answer => return answer,
            }
        }
    }

    fn config(&self) -> AsyncConnectionConfig {
        // These are per step; the whole has a separate bound.
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(Some(self.timeout))
    }

    async fn in_time<T>(&self, asking: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
        match tokio::time::timeout(self.timeout, asking).await {
            Ok(answer) => answer,
            Err(_) => Err(RedisError::from((ErrorKind::Io, "Redis did not answer in time"))),
        }
    }
}

impl Link {
    /// The same, with everything heard so far forgotten; `None` if the connection is lost.
    pub(super) fn cleared(mut self) -> Option<Self> {
        let is_lost = self.heard.borrow_and_update().is_lost || self.heard.has_changed().is_err();
        (!is_lost).then_some(self)
    }

    /// Waits until something is published; `false` if the connection is lost instead.
    pub(super) async fn hear(&mut self) -> bool {
        self.heard.changed().await.is_ok() && !self.heard.borrow().is_lost
    }
}

/// The node of the cluster that an error names, reached in the same way.
fn elsewhere(client: &Client, error: &RedisError) -> RedisResult<Client> {
    let named = error.redirect_node().and_then(|(address, _slot)| {
        let (host, port) = address.rsplit_once(':')?;
        Some((host.trim_start_matches('[').trim_end_matches(']'), port.parse().ok()?))
    });
    let Some((host, port)) = named else {
        return Err(RedisError::from((
            ErrorKind::UnexpectedReturnType,
            "a node of the cluster names no other",
        )));
    };
    let info = client.get_connection_info();
    // A node that does not know its own name leaves it empty, and means the one that was asked.
    let host = |asked: &str| if host.is_empty() { asked.to_owned() } else { host.to_owned() };
    let addr = match info.addr().clone() {
        ConnectionAddr::TcpTls { host: asked, insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host: host(&asked), port, insecure, tls_params }
        }
        ConnectionAddr::Tcp(asked, _) => ConnectionAddr::Tcp(host(&asked), port),
        _ => ConnectionAddr::Tcp(host("127.0.0.1"), port),
    };
    Client::open(info.clone().set_addr(addr))
}
