//! A set of rules as users see it: one value, which is swapped as a whole.

use std::sync::Arc;

use ratekeeper_core::RuleName;

use super::Rule;
use super::set::Rules;
use crate::error::ConfigError;

/// Rules that have been checked and fit together, for [`Limiter::swap`](crate::Limiter::swap).
///
/// A set never changes. Clones are the same set.
///
/// ```
/// use ratekeeper::{Limiter, Quota, Rule, RuleSet};
///
/// # fn main() -> Result<(), ratekeeper::ConfigError> {
/// let limiter = Limiter::builder().rule(Rule::new("api", Quota::per_second(10))).build()?;
///
/// let stricter = RuleSet::new([Rule::new("api", Quota::per_second(2))])?.with_version("incident-7");
/// let before = limiter.swap(stricter);
/// assert_eq!(limiter.rule_set().version(), Some("incident-7"));
///
/// // The incident is over.
/// limiter.swap(before);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RuleSet {
    rules: Arc<Rules>,
}

impl RuleSet {
    /// Checks rules, and makes a set of them.
    ///
    /// # Errors
    ///
    /// If a rule is invalid, or two rules do not fit together. The error says which and why.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Result<Self, ConfigError> {
        Ok(Self { rules: Arc::new(Rules::new(rules.into_iter().collect())?) })
    }

    /// The same set with this version, which distinguishes it from those before and after.
    #[must_use]
    pub fn with_version(mut self, version: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.rules).version = Some(version.into());
        self
    }

    /// Its version, if it has one.
    #[must_use]
    pub fn version(&self) -> Option<&str> {
        self.rules.version.as_deref()
    }

    /// The names of its rules, in order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = RuleName> {
        self.rules.iter().map(|rule| rule.name)
    }

    #[inline]
    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }
}

impl From<Arc<Rules>> for RuleSet {
    fn from(rules: Arc<Rules>) -> Self {
        Self { rules }
    }
}

impl From<RuleSet> for Arc<Rules> {
    fn from(set: RuleSet) -> Self {
        set.rules
    }
}
