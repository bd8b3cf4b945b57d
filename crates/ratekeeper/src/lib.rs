#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "axum")]
mod axum;
mod error;
pub mod guide;
mod head;
pub mod key;
mod layer;
mod limiter;
mod observe;
mod response_head;
mod rule;

/// The crate that the others build on, for writing custom stores.
pub use ratekeeper_core as core;
pub use ratekeeper_core::{
    Algorithm, Charge, Clock, DAY, Decision, HOUR, Key, MINUTE, ManualClock, MemoryStore, Outcome, Quota,
    QuotaError, Retry, SECOND, Share, Store, StoreError, SystemClock, Timestamp,
};

#[cfg(feature = "axum")]
pub use self::axum::MissingLimits;
pub use self::error::{ConfigError, LimiterError};
pub use self::head::RequestHead;
pub use self::key::KeyExtractor;
pub use self::layer::rejection::{
    BoxRejection, GrpcRejection, JsonRejection, ProblemRejection, Rejection, RejectionReason,
};
pub use self::layer::{IetfDraft, RateLimit, RateLimitLayer, ResponseFuture};
pub use self::limiter::settle::{ByteCount, Limits, Measure, Meter, MeterFuture, MeterLayer, Metered};
pub use self::limiter::{ChargeBuilder, Limiter, LimiterBuilder};
pub use self::observe::{Hint, HintCode};
pub use self::response_head::ResponseHead;
pub use self::rule::{
    Counted, Explanation, FailurePolicy, Mismatch, MissingKey, Mode, Rule, RuleSet, Settle, Tier, TierChoice,
    Why,
};
