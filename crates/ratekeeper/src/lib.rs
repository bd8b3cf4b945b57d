#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod error;
pub mod guide;
pub mod key;
mod layer;
mod limiter;
mod observe;
mod request;
mod rule;

pub use ratekeeper_core::{
    DAY, Decision, HOUR, IetfDraft, Key, MINUTE, ManualClock, MemoryStore, Outcome, Quota, QuotaError, Retry,
    RuleName, SECOND, Share, Store, StoreError, StoreErrorKind, Timestamp,
};

pub use self::error::{ConfigError, LimiterError};
pub use self::key::KeyExtractor;
pub use self::layer::{RateLimit, RateLimitLayer};
pub use self::limiter::settle::Limits;
pub use self::limiter::{ChargeBuilder, ChargeFuture, Limiter, LimiterBuilder};
pub use self::request::{RequestHead, ResponseHead};
pub use self::rule::{FailurePolicy, MissingKey, Mode, Rule, RuleSet, Settle, Tier, TierChoice};

/// The responses to rejected requests.
pub mod rejection {
    #[cfg(feature = "axum")]
    pub use crate::layer::extract::Denied;
    pub use crate::layer::rejection::{
        BoxRejection, GrpcRejection, JsonRejection, ProblemRejection, Rejection, RejectionReason,
    };
}

/// Settling by the bodies of responses.
pub mod meter {
    pub use crate::limiter::settle::{ByteCount, Measure, Meter, MeterFuture, MeterLayer, Metered};
}

/// Why a rule counts a request, or does not. See [`RuleSet::explain`](crate::RuleSet::explain).
pub mod explain {
    pub use crate::rule::{Counted, Explanation, Mismatch, Why};
}

/// Signs of misuse. See [`Limiter::hints`](crate::Limiter::hints).
pub mod hint {
    pub use crate::observe::{Hint, HintCode};
}

/// What stores and their callers exchange, for writing and for using a [`Store`] directly.
pub mod store {
    pub use ratekeeper_core::{
        Algorithm, Answer, AnswerFuture, Charge, Clock, Debit, KeyRef, Receipt, Refund, RuleName, Store,
        StoreError, StoreErrorKind, StoreId, SystemClock,
    };
}

/// The types that services and extractors name.
pub mod service {
    pub use crate::layer::ResponseFuture;
    #[cfg(feature = "axum")]
    pub use crate::layer::extract::MissingLimits;
}
