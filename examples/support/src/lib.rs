//! What the examples share, so that each of them can focus on its subject: where they listen, where they
//! count, and how they report errors.
//!
//! [`Program`] is for their tests: it runs an example as a person would.

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
