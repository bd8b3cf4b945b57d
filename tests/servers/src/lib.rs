//! Real servers for Ratekeeper's tests and benchmarks, started by the test that needs them.
//!
//! [`RedisServer`] is one Redis or Valkey, [`Replication`] a master with replicas, and [`Sentinels`] the same
//! with sentinels that watch over them. [`Cluster`] is a Redis Cluster. [`Proxy`] is a bad network in front
//! of any of them. [`PostgresServer`] is one PostgreSQL.
//!
//! ```
//! use ratekeeper_servers::RedisServer;
//!
//! # fn main() -> ratekeeper_servers::Result<()> {
//! let server = RedisServer::start()?;
//! server.command(&["SET", "key", "value"])?;
//! server.restart()?;
//! assert_eq!(server.command(&["DBSIZE"])?, redis::Value::Int(0));
//! # Ok(())
//! # }
//! ```
//!
//! # Which server
//!
//! The binary that the environment variable `REDIS_SERVER` names, or else `redis-server` on the `PATH`. Redis
//! 6.2 and later and Valkey work. PostgreSQL is looked for in the directory that `POSTGRES_BIN` names; if
//! that is not set, on the `PATH` and where systems put it. Any version since 11 works.
//!
//! # What is left behind
//!
//! Nothing. A server is killed and its directory removed when its value is dropped, even by a test that
//! panics. A server that is not dropped, because it is in a `static` or the test was killed, is killed by a
//! shell that waits for the end of the test's process.
//!
//! Every server has its own port on 127.0.0.1, so that tests can run at the same time. Every operation on a
//! server blocks until it is done, mostly for some milliseconds. Unix only.

mod cluster;
mod error;
mod modules;
mod ports;
mod postgres;
mod process;
mod prometheus;
mod proxy;
mod replication;

mod scratch;
mod sentinels;
mod server;
pub mod wait;

pub use self::{
    cluster::Cluster,
    error::{Error, Result},
    modules::{cycle, module_graph},
    postgres::PostgresServer,
    prometheus::Prometheus,
    proxy::{Counts, Mode, Proxy},
    replication::Replication,
    sentinels::Sentinels,
    server::{Builder, Certificates, Product, RedisServer, Version},
};
