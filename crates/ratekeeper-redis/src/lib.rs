#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod batch;
mod cluster;
mod config;
mod connection;
mod denial_cache;
mod error;
mod name;
mod observe;
mod request;
mod script;
mod slot;
mod store;

pub use self::connection::BreakerState;
pub use self::error::SetupError;
pub use self::store::{IntoClient, RedisStore, RedisStoreBuilder, Servers};
