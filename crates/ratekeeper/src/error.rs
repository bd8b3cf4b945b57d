//! Errors in a configuration, and errors of calls to a limiter.

use std::error::Error;
use std::fmt;

use ratekeeper_core::{QuotaError, RuleNameError, Share, StoreError};

/// A configuration that cannot be used. It says what is wrong and where.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A rule's name cannot be used.
    RuleName(RuleNameError),
    /// Two rules have the same name.
    DuplicateRule {
        /// The name.
        rule: String,
    },
    /// There are no rules, so nothing would be limited.
    NoRules,
    /// A quota is invalid.
    Quota {
        /// The rule.
        rule: String,
        /// The tier whose quota it is, if it is not the rule's own.
        tier: Option<String>,
        /// What is wrong.
        error: QuotaError,
    },
    /// Two tiers of a rule have the same name.
    DuplicateTier {
        /// The rule.
        rule: String,
        /// The tier.
        tier: String,
    },
    /// A rule that matches requests has a tier, but nothing [finds](crate::Rule::tier_by) who is in it.
    TierWithoutLookup {
        /// The rule.
        rule: String,
        /// The tier. The first, if there are several.
        tier: String,
    },
    /// A rule has a [candidate](crate::Rule::candidate_of_tier) for a tier that it does not have, or that has
    /// no limit.
    CandidateOfNoTier {
        /// The rule.
        rule: String,
        /// The tier.
        tier: String,
    },
    /// A rule's cost is above what its quota can ever hold, so it would never admit anything.
    CostAboveQuota {
        /// The rule.
        rule: String,
        /// The tier whose quota it is, if it is not the rule's own.
        tier: Option<String>,
        /// The cost.
        cost: u32,
        /// The most that the quota can hold.
        max: u32,
    },
    /// A rule's cost is above what the local share of its quota can ever hold.
    ///
    /// The share is what the rule decides by when the store fails
    /// ([`FailurePolicy::Local`](crate::FailurePolicy::Local)).
    CostAboveShare {
        /// The rule.
        rule: String,
        /// The tier whose quota it is, if it is not the rule's own.
        tier: Option<String>,
        /// The share.
        share: Share,
        /// The cost.
        cost: u32,
        /// The most that the share of the quota can hold.
        max: u32,
    },
    /// A rule's cost is zero, so it would never limit anything.
    ZeroCost {
        /// The rule.
        rule: String,
    },
    /// A path pattern cannot be used.
    Path {
        /// The rule.
        rule: String,
        /// The pattern.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// A rule counts by a [path parameter](crate::key::path_param) that none of its paths has.
    PathParam {
        /// The rule.
        rule: String,
        /// The parameter.
        param: String,
        /// The parameters that its paths have.
        known: Vec<String>,
    },
    /// A host pattern cannot be used.
    Host {
        /// The rule.
        rule: String,
        /// The pattern.
        host: String,
        /// What is wrong.
        reason: String,
    },
    /// A rule is [charged manually](crate::Rule::manual), but also says which requests it matches. It would
    /// never match them.
    Manual {
        /// The rule.
        rule: String,
        /// What has no effect, such as "the path `/messages`". The first, if there are several.
        in_vain: String,
    },
    /// A rule cannot [hold requests back](crate::Rule::hold_up_to), or not for that long.
    Hold {
        /// The rule.
        rule: String,
        /// The tier whose quota it is, if it is not the rule's own.
        tier: Option<String>,
        /// What is wrong.
        reason: String,
    },
    /// A network of trusted proxies cannot be used.
    Network {
        /// The network.
        network: String,
        /// What is wrong.
        reason: String,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RuleName(error) => write!(f, "{error}"),
            Self::DuplicateRule { rule } => {
                write!(f, "two rules are named `{rule}`; they would share their counters")
            }
            Self::NoRules => f.write_str("there are no rules, so nothing would be limited"),
            Self::Quota { rule, tier, error } => write!(f, "{}: {error}", Place(rule, tier.as_deref())),
            Self::DuplicateTier { rule, tier } => {
                write!(f, "rule `{rule}`: two tiers are named `{tier}`")
            }
            Self::TierWithoutLookup { rule, tier } => write!(
                f,
                "rule `{rule}`: nothing finds who is in the tier `{tier}`; add `Rule::tier_by`, or `Rule::manual` if \
                 only `Limiter::charge` uses the rule"
            ),
            Self::CandidateOfNoTier { rule, tier } => {
                write!(
                    f,
                    "rule `{rule}`: there is a candidate for the tier `{tier}`, but no such tier with a limit"
                )
            }
            Self::CostAboveQuota { rule, tier, cost, max } => write!(
                f,
                "{}: a request costs {cost}, but the quota never holds more than {max}, so nothing would \
                 ever be admitted",
                Place(rule, tier.as_deref())
            ),
            Self::CostAboveShare { rule, tier, share, cost, max } => write!(
                f,
                "{}: a request costs {cost}, but {share} of the quota never holds more than {max}, so nothing would \
                 be admitted when the store fails",
                Place(rule, tier.as_deref())
            ),
            Self::ZeroCost { rule } => {
                write!(f, "rule `{rule}`: a request that costs 0 is never limited; the least is 1")
            }
            Self::Path { rule, path, reason } => write!(f, "rule `{rule}`, path `{path}`: {reason}"),
            Self::PathParam { rule, param, known } => {
                write!(
                    f,
                    "rule `{rule}`: no path of the rule has the parameter `{param}` that it counts by; "
                )?;
                match known.as_slice() {
                    [] => f.write_str("they have none"),
                    known => write!(f, "they have `{}`", known.join("`, `")),
                }
            }
            Self::Host { rule, host, reason } => write!(f, "rule `{rule}`, host `{host}`: {reason}"),
            Self::Manual { rule, in_vain } => {
                write!(f, "rule `{rule}` is charged by hand and matches no request, so {in_vain} is in vain")
            }
            Self::Hold { rule, tier, reason } => write!(f, "{}: {reason}", Place(rule, tier.as_deref())),
            Self::Network { network, reason } => write!(f, "trusted proxies `{network}`: {reason}"),
        }
    }
}

impl Error for ConfigError {}

/// A rule, and a tier of it.
struct Place<'a>(&'a str, Option<&'a str>);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(rule, tier) = self;
        write!(f, "rule `{rule}`")?;
        tier.map_or(Ok(()), |tier| write!(f, ", tier `{tier}`"))
    }
}

impl From<RuleNameError> for ConfigError {
    fn from(error: RuleNameError) -> Self {
        Self::RuleName(error)
    }
}

/// A call to a limiter that could not be answered.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LimiterError {
    /// The limiter has no rule of this name.
    UnknownRule(String),
    /// The rule has no tier of this name.
    UnknownTier {
        /// The rule.
        rule: String,
        /// The tier.
        tier: String,
    },
    /// No rule of the limiter is settled, so what was charged for the request is no longer known.
    NotSettled {
        /// The rule that was asked for.
        rule: String,
    },
    /// The charge would have to wait, but too many [wait already](crate::LimiterBuilder::max_waiting), or the
    /// limiter [is closed](crate::Limiter::close).
    Overloaded,
    /// The store could not decide.
    Store(StoreError),
}

impl fmt::Display for LimiterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownRule(rule) => write!(f, "there is no rule named `{rule}`"),
            Self::UnknownTier { rule, tier } => write!(f, "rule `{rule}` has no tier named `{tier}`"),
            Self::NotSettled { rule } => write!(
                f,
                "what was charged under `{rule}` cannot be changed any more, as no rule of the limiter is settled: say so \
                 with `Rule::settle_in_handler`"
            ),
            Self::Overloaded => {
                f.write_str("the charge cannot wait: too many wait already, or the limiter is closed")
            }
            Self::Store(error) => write!(f, "{error}"),
        }
    }
}

impl Error for LimiterError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Store(error) => error.source(),
            Self::UnknownRule(_) | Self::UnknownTier { .. } | Self::NotSettled { .. } | Self::Overloaded => {
                None
            }
        }
    }
}

impl From<StoreError> for LimiterError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
