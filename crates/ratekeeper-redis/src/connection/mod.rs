//! The connection to a server: making it, using it, and getting it back.

mod backoff;
mod breaker;
mod connect;
mod eviction_policy;
mod handle;
mod probe;
mod sentinel;
mod socket;
mod worker;

pub(crate) use self::backoff::Backoff;
pub(crate) use self::breaker::Breaker;
pub use self::breaker::BreakerState;
pub(crate) use self::connect::{Address, Target, at, open};
pub(crate) use self::handle::{Connection, Redirect};
pub(crate) use self::probe::Tags;
pub(crate) use self::sentinel::Sentinels;
