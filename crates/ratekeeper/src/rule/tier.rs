//! Quotas that depend on the caller.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::Quota;

use crate::request::RequestHead;

/// What a tier allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tier {
    /// Its own quota.
    Limited(Quota),
    /// Its own quota, and requests over it are held back instead of refused. See [`Tier::hold_up_to`].
    Held {
        /// The quota.
        quota: Quota,
        /// For how long at most.
        up_to: Duration,
    },
    /// No limit: the rule does not count these callers at all.
    Unlimited,
}

impl Tier {
    /// Holds requests of this tier back that are over its quota, for at most this long, instead of refusing
    /// them.
    ///
    /// This replaces [`Rule::hold_up_to`](crate::Rule::hold_up_to) for this tier. Zero means refusing.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratekeeper::{Quota, Rule, Tier};
    ///
    /// # struct Pro;
    /// // Paying customers are smoothed, others are refused.
    /// let rule = Rule::new("api", Quota::per_second(2))
    ///     .tier("pro", Tier::from(Quota::per_second(20)).hold_up_to(Duration::from_secs(2)))
    ///     .tier_by(|head| head.extension::<Pro>().map(|_| "pro"));
    /// ```
    #[must_use]
    pub const fn hold_up_to(self, up_to: Duration) -> Self {
        match self {
            Self::Limited(quota) | Self::Held { quota, .. } => Self::Held { quota, up_to },
            Self::Unlimited => Self::Unlimited,
        }
    }
}

impl From<Quota> for Tier {
    fn from(quota: Quota) -> Self {
        Self::Limited(quota)
    }
}

/// Which tier a caller is in.
///
/// Usually the name of one of the rule's tiers. `None`, and a name that the rule does not have, mean the
/// rule's own quota, so that a caller in a tier unknown to the rule is still limited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum TierChoice {
    /// The rule's own quota.
    #[default]
    Default,
    /// The tier of this name.
    Named(Cow<'static, str>),
    /// A quota, or no limit, for this caller alone.
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
