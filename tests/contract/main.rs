//! The contract of stores, for each store there is.

mod memory;
mod torn;
