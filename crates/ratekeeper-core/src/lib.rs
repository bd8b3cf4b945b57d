#![doc = include_str!("../README.md")]
//!
//! # Where to find what
//!
//! - [`Quota`] and its [`Algorithm`]; [`Key`]; [`Charge`], [`Refund`] and [`Debit`].
//! - [`Decision`], with an [`Outcome`] for each rule, and [`Retry`]; [`StoreError`].
//! - [`Store`], and how it answers: [`Answer`]. [`MemoryStore`] is one; [`MemoryStore::evicted`] counts what did not fit.
//! - [`algorithm`], for stores that keep their states elsewhere; [`algorithm::Counter`] follows changes of quotas.
//! - [`Clock`]: [`SystemClock`], and [`ManualClock`] for tests.

pub mod algorithm;
mod charge;
pub mod clock;
#[doc(hidden)]
pub mod codec;
mod decision;
mod error;
mod ietf;
mod key;
mod memory;
pub mod quota;
mod rule_name;
mod store;
mod sync;
mod time;

pub use charge::{Charge, Debit, Receipt, Refund};
pub use clock::{Clock, ManualClock, SystemClock};
pub use decision::{Decision, Outcome, Retry};
pub use error::{StoreError, StoreErrorKind};
pub use ietf::IetfDraft;
pub use key::{Key, KeyRef};
pub use memory::{KeyHash, MemoryStore, MemoryStoreBuilder};
pub use quota::{Algorithm, DAY, HOUR, MINUTE, Quota, QuotaError, SECOND, Share};
pub use rule_name::{RuleName, RuleNameError};
pub use store::{Answer, AnswerFuture, Store, StoreId};
pub use time::Timestamp;
