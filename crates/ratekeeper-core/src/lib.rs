#![doc = include_str!("../README.md")]

pub mod algorithm;
mod charge;
pub mod clock;
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
