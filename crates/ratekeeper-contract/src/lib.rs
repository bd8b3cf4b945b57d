#![doc = include_str!("../README.md")]
//!
//! # Where to find what
//!
//! - [`suite!`] makes a test of each case, for a store of [`ratekeeper_core::Store`].
//! - [`Harness`] is what a store's tests implement; [`MemoryHarness`] is one.
#![forbid(unsafe_code)]

mod bench;
mod harness;
mod join;
mod model;
mod random;
mod suite;

pub mod all_or_nothing;
pub mod at_once;
pub mod counting;
pub mod debts;
pub mod giving_back;
pub mod keys;
pub mod many_quotas;
pub mod peeking;
pub mod quota_changes;
pub mod replay;
pub mod reservations;
pub mod time;
pub mod two_quotas;
pub mod waiting;
pub mod worked_figures;

use bench::{Bench, Caller, MICRO, each, wait};
pub use harness::{Harness, MemoryHarness};
pub use join::block_on;
pub use model::Model;
