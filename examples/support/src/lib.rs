//! What the examples have in common, so that each of them is about its own matter: where they listen, where they count,
//! and how they say what is wrong.
//!
//! [`Program`] is for their tests: it runs one of them as a person would.

mod failure;
mod listen;
mod program;
#[cfg(feature = "redis")]
mod redis;

pub use self::failure::Failure;
pub use self::listen::listen;
pub use self::program::{Program, Reply};
#[cfg(feature = "redis")]
pub use self::redis::{redis, redis_or};
