//! What can be wrong with a quota.

use std::error::Error;
use std::fmt;

use super::Algorithm;

/// Why a quota is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QuotaError {
    /// The limit is zero, so nothing could ever be admitted.
    ZeroLimit,
    /// The burst is zero, so nothing could ever be admitted.
    ZeroBurst,
    /// The capacity is zero, so nothing could ever be admitted.
    ZeroCapacity,
    /// The period is below a millisecond.
    PeriodTooShort,
    /// The period is above ten years.
    PeriodTooLong,
    /// The period is not a whole number of microseconds.
    PeriodTooFine,
    /// The burst or capacity would take more than 142 years to come back.
    TooSlow,
    /// A burst was set on an algorithm that has none.
    BurstWithout(Algorithm),
    /// A capacity was set on an algorithm that has none.
    CapacityWithout(Algorithm),
}

impl fmt::Display for QuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroLimit => f.write_str("a limit of zero admits nothing; the least is 1"),
            Self::ZeroBurst => f.write_str("a burst of zero admits nothing; the least is 1"),
            Self::ZeroCapacity => f.write_str("a capacity of zero admits nothing; the least is 1"),
            Self::PeriodTooShort => f.write_str("the period is below one millisecond"),
            Self::PeriodTooLong => f.write_str("the period is above ten years"),
            Self::PeriodTooFine => f.write_str("the period is not a whole number of microseconds"),
            Self::TooSlow => f.write_str("at this rate the whole budget takes over 142 years to come back"),
            Self::BurstWithout(Algorithm::LeakyBucket) => {
                f.write_str("a leaky-bucket has no burst; its queue has a capacity")
            }
            Self::BurstWithout(algorithm) => {
                write!(f, "a {algorithm} has no burst; only a token-bucket has")
            }
            Self::CapacityWithout(Algorithm::TokenBucket) => {
                f.write_str("a token-bucket has no capacity; what it holds is its burst")
            }
            Self::CapacityWithout(algorithm) => {
                write!(f, "a {algorithm} has no capacity; only a leaky-bucket has")
            }
        }
    }
}

impl Error for QuotaError {}

/// A text that is not a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseQuotaError {
    pub(super) text: String,
    pub(super) problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Problem {
    Invalid(QuotaError),
    Number(String),
    Expected { what: &'static str, found: String },
}

impl ParseQuotaError {
    /// Why the quota is invalid, if the text was well-formed but its numbers are not valid.
    #[must_use]
    pub const fn quota_error(&self) -> Option<QuotaError> {
        match self.problem {
            Problem::Invalid(error) => Some(error),
            Problem::Number(_) | Problem::Expected { .. } => None,
        }
    }
}

impl fmt::Display for ParseQuotaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the quota {:?} cannot be used: ", self.text)?;
        match &self.problem {
            Problem::Invalid(error) => write!(f, "{error}"),
            Problem::Number(found) => {
                write!(f, "{found:?} is not a whole number from 0 to {}", u32::MAX)
            }
            Problem::Expected { what, found } if found.is_empty() => {
                write!(f, "expected {what}, but the text ends there")
            }
            Problem::Expected { what, found } => write!(f, "expected {what}, found {found:?}"),
        }?;
        f.write_str(" (write it like `100/minute`, `10/s burst 20` or `5 per 30s sliding-log`)")
    }
}

impl Error for ParseQuotaError {}
