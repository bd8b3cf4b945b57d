//! Where the servers are.

use redis::{Client, IntoConnectionInfo};

use crate::connection::{Sentinels, Target};
use crate::error::SetupError;

/// Where the counters live: one server, a master that sentinels watch, or a cluster.
///
/// An address is a URL such as `redis://user:password@host:6379/2`, `rediss://host` (TLS, with one of the TLS
/// features) or `unix:///run/redis.sock`. For anything that a URL cannot express, such as custom
/// certificates, it can be a [`redis::Client`].
#[derive(Clone, Debug)]
pub struct Servers(pub(crate) Kind);

#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a store has one, for as long as it is made")]
pub(crate) enum Kind {
    One(Target),
    Cluster(Vec<Client>),
}

impl Servers {
    /// One server, which is not in cluster mode.
    ///
    /// # Errors
    ///
    /// If the address is invalid.
    pub fn one(address: impl IntoClient) -> Result<Self, SetupError> {
        Ok(Self(Kind::One(Target::Server(address.into_client()?))))
    }

    /// The master that sentinels know by the name `service`.
    ///
    /// `node` says how to reach it, except for host and port: user, password, database, TLS. Pass
    /// `redis://ignored` if there is nothing to specify.
    ///
    /// # Errors
    ///
    /// If an address is invalid, or there is none.
    pub fn sentinel<A: IntoClient>(
        sentinels: impl IntoIterator<Item = A>,
        service: impl Into<String>,
        node: impl IntoClient,
    ) -> Result<Self, SetupError> {
        let node = node.into_client()?.get_connection_info().clone();
        let sentinels = Sentinels { sentinels: clients(sentinels)?, service: service.into(), node };
        Ok(Self(Kind::One(Target::Sentinel(sentinels))))
    }

    /// A cluster, given by some of its nodes.
    ///
    /// # Errors
    ///
    /// If an address is invalid, or there is none.
    pub fn cluster<A: IntoClient>(nodes: impl IntoIterator<Item = A>) -> Result<Self, SetupError> {
        Ok(Self(Kind::Cluster(clients(nodes)?)))
    }
}

fn clients<A: IntoClient>(addresses: impl IntoIterator<Item = A>) -> Result<Vec<Client>, SetupError> {
    let clients = addresses.into_iter().map(IntoClient::into_client).collect::<Result<Vec<_>, _>>()?;
    if clients.is_empty() { Err(SetupError::NoServers) } else { Ok(clients) }
}

/// Something that says how to reach a server: a URL, or a [`redis::Client`].
pub trait IntoClient {
    /// Converts it into a client.
    ///
    /// # Errors
    ///
    /// If the address is invalid.
    fn into_client(self) -> Result<Client, SetupError>;
}

impl IntoClient for Client {
    fn into_client(self) -> Result<Client, SetupError> {
        Ok(self)
    }
}

macro_rules! into_client {
    ($($address:ty),*) => {$(
        impl IntoClient for $address {
            fn into_client(self) -> Result<Client, SetupError> {
                Client::open(self.into_connection_info().map_err(SetupError::Address)?).map_err(SetupError::Address)
            }
        }
    )*};
}

into_client!(&str, String, redis::ConnectionInfo);

impl IntoClient for &String {
    fn into_client(self) -> Result<Client, SetupError> {
        self.as_str().into_client()
    }
}
