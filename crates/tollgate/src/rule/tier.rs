//! Quotas that depend on the caller.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tollgate_core::Quota;

use crate::RequestHead;

/// What a tier allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tier {
    /// A quota of its own.
    Limited(Quota),
    /// No limit: the rule does not count these callers at all.
    Unlimited,
}

impl From<Quota> for Tier {
    fn from(quota: Quota) -> Self {
        Self::Limited(quota)
    }
}

/// Which tier a caller is in.
///
/// Mostly a name, of a tier that the rule has. `None`, and a name that the rule does not have, mean the
/// rule's own quota, so that a caller of a tier that nobody told the rule about is limited all the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TierChoice {
    /// The rule's own quota.
    #[default]
    Default,
    /// The tier of this name.
    Named(Cow<'static, str>),
    /// A quota, or none, for this caller alone.
    Custom(Tier),
}

impl From<&'static str> for TierChoice {
    fn from(name: &'static str) -> Self {
        Self::Named(Cow::Borrowed(name))
    }
}

impl From<String> for TierChoice {
    fn from(name: String) -> Self {
        Self::Named(Cow::Owned(name))
    }
}

impl From<Tier> for TierChoice {
    fn from(tier: Tier) -> Self {
        Self::Custom(tier)
    }
}

impl From<Quota> for TierChoice {
    fn from(quota: Quota) -> Self {
        Self::Custom(Tier::Limited(quota))
    }
}

impl<T: Into<Self>> From<Option<T>> for TierChoice {
    fn from(choice: Option<T>) -> Self {
        choice.map_or(Self::Default, Into::into)
    }
}

pub(crate) type TierFuture = Pin<Box<dyn Future<Output = TierChoice> + Send>>;

/// How a rule finds a caller's tier.
#[derive(Clone)]
pub(crate) enum TierLookup {
    Now(Arc<dyn Fn(&RequestHead<'_>) -> TierChoice + Send + Sync>),
    Later(Arc<dyn Fn(&RequestHead<'_>) -> TierFuture + Send + Sync>),
}

impl fmt::Debug for TierLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Now(_) => "Now(..)",
            Self::Later(_) => "Later(..)",
        })
    }
}
