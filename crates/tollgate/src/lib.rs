#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "axum")]
mod axum;
mod call;
mod error;
mod failure;
mod future;
mod gate;
mod head;
mod headers;
pub mod key;
mod layer;
mod limiter;
mod response;
mod rule;
mod service;
mod told;
mod waiting;

/// The crate that the others stand on: for stores of one's own.
pub use tollgate_core as core;
pub use tollgate_core::{
    Algorithm, Charge, Clock, DAY, Decision, HOUR, Key, MINUTE, ManualClock, MemoryStore, Outcome, Quota,
    QuotaError, Retry, SECOND, Share, Store, StoreError, SystemClock, Timestamp,
};

pub use self::error::{ConfigError, LimiterError};
pub use self::failure::FailurePolicy;
pub use self::future::ResponseFuture;
pub use self::head::RequestHead;
pub use self::headers::IetfDraft;
pub use self::key::KeyExtractor;
pub use self::layer::RateLimitLayer;
pub use self::limiter::{ChargeBuilder, Limiter, LimiterBuilder};
pub use self::response::{BoxRejection, JsonRejection, ProblemRejection, Refusal, Rejection};
pub use self::rule::{MissingKey, Rule, Tier, TierChoice};
pub use self::service::RateLimit;
