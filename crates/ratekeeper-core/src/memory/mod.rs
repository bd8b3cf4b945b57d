//! The in-memory store.

mod builder;
mod evict;
mod hash;
mod lock;
mod quotas;
mod request;
mod shard;
mod slot;
mod states;
mod store;
mod sweep;
mod table;

pub use self::builder::MemoryStoreBuilder;
pub use self::hash::KeyHash;
pub use self::store::MemoryStore;
