//! Atomics, replaced by loom's under test: lock-free code is tested in every order that the memory model
//! allows, with `RUSTFLAGS="--cfg loom" cargo test -p ratekeeper-core --lib loom`.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
