#![doc = include_str!("../README.md")]
//!
//! # Where to find what
//!
//! - [`RateLimitLayer`] is the layer. It sets which header fields are sent ([`RateLimitLayer::ietf_headers`]), what a
//!   rejection looks like ([`RateLimitLayer::problem_details`], [`Rejection`]), and whether preflights count
//!   ([`RateLimitLayer::charge_preflights`]).
//! - [`Rule`] is one limit: its quota, its [`key`], its tiers ([`Rule::tier_by`]), what happens without a key
//!   ([`MissingKey`]) or without the store ([`FailurePolicy`]), whether requests wait ([`Rule::hold_up_to`]), and what
//!   they cost in the end ([`Rule::settle_by`]).
//! - [`key`] has the keys, such as [`key::client_ip`]; [`key::PeerAddr`] is for servers other than axum's.
//! - [`Limiter`] decides without HTTP. [`LimiterBuilder::max_waiting`] bounds how many requests wait, and
//!   [`Limiter::close`] releases them.
//! - [`Limits`] is for handlers: [`Limits::settle`], [`Limits::meter`]; [`MeterLayer`] is for services without one.
//! - [`Store`] is where the counters are, and [`Decision`] its answer.
//! - [`guide`] has the pages on metrics, events and hints.
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
    Algorithm, Charge, Clock, DAY, Decision, HOUR, IetfDraft, Key, MINUTE, ManualClock, MemoryStore, Outcome,
    Quota, QuotaError, Retry, SECOND, Share, Store, StoreError, SystemClock, Timestamp,
};

#[cfg(feature = "axum")]
pub use self::axum::MissingLimits;
pub use self::error::{ConfigError, LimiterError};
pub use self::head::RequestHead;
pub use self::key::KeyExtractor;
pub use self::layer::rejection::{
    BoxRejection, GrpcRejection, JsonRejection, ProblemRejection, Rejection, RejectionReason,
};
pub use self::layer::{RateLimit, RateLimitLayer, ResponseFuture};
pub use self::limiter::settle::{ByteCount, Limits, Measure, Meter, MeterFuture, MeterLayer, Metered};
pub use self::limiter::{ChargeBuilder, Limiter, LimiterBuilder};
pub use self::observe::{Hint, HintCode};
pub use self::response_head::ResponseHead;
pub use self::rule::{
    Counted, Explanation, FailurePolicy, Mismatch, MissingKey, Mode, Rule, RuleSet, Settle, Tier, TierChoice,
    Why,
};
