//! Where the servers are, and how to reach one.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError};

use super::sentinel::Sentinels;
use super::socket::Socket;

/// How to reach a server whose address may change.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// Always the same.
    Server(Client),
    /// A node of a cluster.
    Node(ConnectionInfo),
    /// Whichever the sentinels say is the master.
    Sentinel(Sentinels),
}

/// Where a server is: host and port.
pub(crate) type Address = (String, u16);

impl Target {
    /// Connects. Also returns where, if the sentinels say.
    pub(crate) async fn connect(&self, timeout: Duration) -> Result<(Socket, Option<Address>), RedisError> {
        let connecting = async {
            match self {
                Self::Server(client) => Ok((Socket::open(client, timeout).await?, None)),
                Self::Node(info) => Ok((Socket::open(&Client::open(info.clone())?, timeout).await?, None)),
                Self::Sentinel(sentinels) => {
                    let (socket, master) = sentinels.connect(timeout).await?;
                    Ok((socket, Some(master)))
                }
            }
        };
        match tokio::time::timeout(timeout, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err(RedisError::from((ErrorKind::Io, "connecting took too long"))),
        }
    }
}

/// The same connection settings, with another address.
pub(crate) fn at(info: &ConnectionInfo, host: String, port: u16) -> ConnectionInfo {
    let addr = match info.addr().clone() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure, tls_params }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    info.clone().set_addr(addr)
}

/// Opens a connection that drives itself.
pub(crate) async fn open(client: &Client, timeout: Duration) -> Result<MultiplexedConnection, RedisError> {
    prepare(client);
    let config = without_response_timeout().set_connection_timeout(Some(timeout));
    // What is sent while an answer is awaited must not wait for that answer. A batch is written at once, so
    // there is nothing to coalesce.
    let info = client.get_connection_info().clone();
    let settings = info.tcp_settings().clone().set_nodelay(true);
    let client = Client::open(info.set_tcp_settings(settings))?;
    client.get_multiplexed_async_connection_with_config(&config).await
}

/// Every caller that waits for an answer has its own deadline.
pub(crate) fn without_response_timeout() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_response_timeout(None)
}

/// Chooses rustls's cryptography for a connection with TLS if the process has not. Without any, connecting
/// would panic.
pub(crate) fn prepare(client: &Client) {
    #[cfg(feature = "tls-rustls")]
    {
        use rustls::crypto::{CryptoProvider, ring};
        let with_tls = matches!(client.get_connection_info().addr(), ConnectionAddr::TcpTls { .. });
        if with_tls && CryptoProvider::get_default().is_none() {
            // If another thread was faster, there is one now.
            let _ = ring::default_provider().install_default();
        }
    }
    let _ = client;
}
