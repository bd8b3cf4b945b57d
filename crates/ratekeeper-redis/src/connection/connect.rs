//! Where the servers are, and how to reach one.

use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, RedisError};

use crate::script::{CHARGE, SETTLE};

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

/// Sentinels that watch a master.
#[derive(Clone)]
pub(crate) struct Sentinels {
    pub(crate) sentinels: Vec<Client>,
    pub(crate) service: String,
    /// How to reach a master, except for its address.
    pub(crate) node: ConnectionInfo,
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sentinels").field("service", &self.service).finish_non_exhaustive()
    }
}

impl Target {
    /// Makes a connection, ready for use: its scripts are loaded.
    pub(crate) async fn connect(&self, timeout: Duration) -> Result<MultiplexedConnection, RedisError> {
        let connecting = async {
            let client = match self {
                Self::Server(client) => client.clone(),
                Self::Node(info) => Client::open(info.clone())?,
                Self::Sentinel(sentinels) => sentinels.master(timeout).await?,
            };
            let mut connection = open(&client, timeout).await?;
            load_scripts(&mut connection).await?;
            Ok(connection)
        };
        match tokio::time::timeout(timeout, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err(RedisError::from((ErrorKind::Io, "connecting took too long"))),
        }
    }
}

impl Sentinels {
    /// The master, according to the first sentinel that knows it. All are asked at once: one that does not
    /// answer must not use up the time of the others.
    async fn master(&self, timeout: Duration) -> Result<Client, RedisError> {
        let mut error = RedisError::from((ErrorKind::InvalidClientConfig, "there are no sentinels to ask"));
        let mut asked: FuturesUnordered<_> =
            self.sentinels.iter().map(|sentinel| self.ask(sentinel, timeout)).collect();
        while let Some(answer) = asked.next().await {
            match answer {
                Ok(master) => return Ok(master),
                Err(failed) => error = failed,
            }
        }
        Err(error)
    }

    async fn ask(&self, sentinel: &Client, timeout: Duration) -> Result<Client, RedisError> {
        let mut connection = open(sentinel, timeout).await?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("get-master-addr-by-name").arg(&self.service);
        let address: Option<(String, u16)> = command.query_async(&mut connection).await?;
        let Some((host, port)) = address else {
            let detail = format!("no sentinel knows a master called {:?}", self.service);
            return Err(RedisError::from((
                ErrorKind::MasterNameNotFoundBySentinel,
                "unknown master",
                detail,
            )));
        };
        let client = Client::open(at(&self.node, host, port))?;
        // A sentinel's answer may be outdated: asking a master that was just demoted would be useless.
        let mut connection = open(&client, timeout).await?;
        let role: redis::Value = redis::cmd("ROLE").query_async(&mut connection).await?;
        match role {
            redis::Value::Array(role)
                if role.first() == Some(&redis::Value::BulkString(b"master".to_vec())) =>
            {
                Ok(client)
            }
            _ => Err(RedisError::from((ErrorKind::Io, "who was the master is not any more"))),
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

pub(crate) async fn open(client: &Client, timeout: Duration) -> Result<MultiplexedConnection, RedisError> {
    #[cfg(feature = "tls-rustls")]
    choose_cryptography(client.get_connection_info().addr());
    // Every caller that waits for an answer has its own deadline.
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(timeout)).set_response_timeout(None);
    // What is sent while an answer is awaited must not wait for that answer. A go is written at once, so
    // there is nothing to coalesce.
    let info = client.get_connection_info().clone();
    let settings = info.tcp_settings().clone().set_nodelay(true);
    let client = Client::open(info.set_tcp_settings(settings))?;
    client.get_multiplexed_async_connection_with_config(&config).await
}

/// Whether a connection is known to be closed. This sends nothing: a command that is given up immediately is
/// not sent, and the task that reads the connection accepts no commands once it has reached the end.
pub(crate) fn is_closed(connection: &mut MultiplexedConnection) -> bool {
    static PING: LazyLock<Cmd> = LazyLock::new(|| redis::cmd("PING"));
    matches!(connection.send_packed_command(&PING).now_or_never(), Some(Err(_)))
}

/// Chooses rustls's cryptography if the process has not. Without any, connecting would panic.
#[cfg(feature = "tls-rustls")]
fn choose_cryptography(addr: &ConnectionAddr) {
    use rustls::crypto::{CryptoProvider, ring};
    if matches!(addr, ConnectionAddr::TcpTls { .. }) && CryptoProvider::get_default().is_none() {
        // If another thread was faster, there is one now.
        let _ = ring::default_provider().install_default();
    }
}

async fn load_scripts(connection: &mut MultiplexedConnection) -> Result<(), RedisError> {
    for script in [&CHARGE, &SETTLE] {
        // Not through the script itself, which panics if Redis returns another name.
        let name: String = redis::cmd("SCRIPT").arg("LOAD").arg(script.text).query_async(connection).await?;
        if name != *script.hash {
            let detail = "Redis gave a script another name than it has";
            return Err(RedisError::from((ErrorKind::UnexpectedReturnType, detail)));
        }
    }
    Ok(())
}
