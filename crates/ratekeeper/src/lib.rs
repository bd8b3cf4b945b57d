#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "axum")]
mod axum;
mod call;
mod error;
mod failure;
mod future;
mod gate;
pub mod guide;
mod head;
mod headers;
mod hint;
mod hold;
pub mod key;
mod layer;
mod limiter;
mod observe;
mod response;
mod response_head;
mod rule;
mod service;
mod settle;
mod told;
mod waiting;

/// The crate that the others build on, for writing custom stores.
pub use ratekeeper_core as core;
pub use ratekeeper_core::{
    Algorithm, Charge, Clock, DAY, Decision, HOUR, IetfDraft, Key, MINUTE, ManualClock, MemoryStore, Outcome, Quota,
    QuotaError, Retry, SECOND, Share, Store, StoreError, SystemClock, Timestamp,
};

#[cfg(feature = "axum")]
pub use self::axum::MissingLimits;
pub use self::error::{ConfigError, LimiterError};
pub use self::failure::FailurePolicy;
pub use self::future::ResponseFuture;
pub use self::head::RequestHead;
pub use self::hint::{Hint, HintCode};
pub use self::key::KeyExtractor;
pub use self::layer::RateLimitLayer;
pub use self::limiter::{ChargeBuilder, Limiter, LimiterBuilder};
pub use self::response::{
    BoxRejection, ChosenRejection, GrpcRejection, JsonRejection, ProblemRejection, Refusal, Rejection,
};
pub use self::response_head::ResponseHead;
pub use self::rule::{
    Counted, Explanation, Mismatch, MissingKey, Mode, Rule, RuleSet, Tier, TierChoice, Why,
};
pub use self::service::RateLimit;
pub use self::settle::{ByteCount, Limits, Measure, Meter, MeterFuture, MeterLayer, Metered, Settle};
