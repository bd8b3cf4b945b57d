#![doc = include_str!("../README.md")]
//!
//! # Where to find what
//!
//! - [`RedisStore`] is the store. [`RedisStore::ready`] waits for Redis, [`RedisStore::breaker`] reports whether it
//!   answers, and [`RedisStore::watch_breaker`] each change.
//! - [`RedisStoreBuilder`] has the settings: [`timeout`](RedisStoreBuilder::timeout),
//!   [`max_backoff`](RedisStoreBuilder::max_backoff), [`max_waiting`](RedisStoreBuilder::max_waiting),
//!   [`denial_cache_ttl`](RedisStoreBuilder::denial_cache_ttl).
//! - [`Servers`] says where the servers are.
//! - [`ratekeeper_core::StoreError`] is how a decision fails.
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
