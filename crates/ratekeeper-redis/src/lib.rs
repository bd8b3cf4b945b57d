#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod asking;
mod breaker;
mod builder;
mod call;
mod cluster;
mod config;
mod connect;
mod crowd;
mod denied;
mod error;
mod eviction;
mod flight;
mod gather;
mod link;
mod name;
mod observe;
mod pace;
mod probe;
mod queue;
mod request;
mod script;
mod server_time;
mod servers;
mod settlement;
mod several;
mod store;
mod term;
mod totals;
mod verdict;
mod whole;

pub use self::breaker::BreakerState;
pub use self::builder::RedisStoreBuilder;
pub use self::error::SetupError;
pub use self::servers::{IntoClient, Servers};
pub use self::store::RedisStore;
