//! The contract of stores, for each store.

mod memory;
mod torn;
