//! Rules that have been checked, ready to be asked.

use std::collections::{HashMap, HashSet};

use http::HeaderValue;
use tollgate_core::{Quota, RuleName};

use super::index::{Index, Matches};
use super::pattern::Pattern;
use super::{Cost, MissingKey, Predicate, Rule, Tier, TierChoice, TierLookup};
use crate::RequestHead;
use crate::error::ConfigError;
use crate::failure::FailurePolicy;
use crate::headers::ietf;
use crate::key::KeySource;

/// A set of rules that fit together.
#[derive(Debug)]
pub(crate) struct RuleSet {
    rules: Vec<Compiled>,
    index: Index,
    /// Whether there is one rule, which applies everywhere and has the same quota for all.
    is_one_plain: bool,
}

/// Which rules of a set have paths that match, by number, and by which pattern.
pub(crate) enum Matching<'a> {
    None,
    One(usize, Option<&'a Pattern>),
    /// These, which match every path.
    Everywhere(&'a [usize]),
    Several(Matches<'a>),
}

/// One rule of a set.
pub(crate) struct Compiled {
    pub(crate) name: RuleName,
    pub(crate) key: KeySource,
    pub(crate) missing_key: MissingKey,
    pub(crate) tier_lookup: Option<TierLookup>,
    pub(crate) failure: FailurePolicy,
    predicates: Vec<Predicate>,
    cost: Cost,
    /// The rule's own quota first, then its tiers'.
    quotas: Vec<NamedQuota>,
    tiers: HashMap<String, Option<usize>>,
}

struct NamedQuota {
    quota: Quota,
    /// The quota as it stands in `RateLimit-Policy`.
    policy: HeaderValue,
}

/// Which of a rule's quotas applies.
#[derive(Clone, Debug)]
pub(crate) enum QuotaChoice {
    /// One that the rule has.
    Own(usize),
    /// One that was made for this caller.
    Custom(Box<Quota>),
}

impl RuleSet {
    pub(crate) fn new(rules: Vec<Rule>) -> Result<Self, ConfigError> {
        if rules.is_empty() {
            return Err(ConfigError::NoRules);
        }
        let mut index = Index::default();
        let mut names = HashSet::new();
        let mut compiled = Vec::with_capacity(rules.len());
        for rule in rules {
            let number = compiled.len();
            if rule.paths.is_empty() {
                index.add_anywhere(number);
            }
            for (method, path) in &rule.paths {
                let pattern = Pattern::parse(path).map_err(|problem| ConfigError::Path {
                    rule: rule.name.clone(),
                    path: path.clone(),
                    reason: problem.to_string(),
                })?;
                index.add(number, method.clone(), &pattern);
            }
            let rule = Compiled::new(rule)?;
            if !names.insert(rule.name.id()) {
                return Err(ConfigError::DuplicateRule { rule: rule.name.to_string() });
            }
            compiled.push(rule);
        }
        let is_one_plain = index.everywhere().is_some() && matches!(&*compiled, [only] if only.is_plain());
        Ok(Self { rules: compiled, index, is_one_plain })
    }

    /// Whether there is one rule, which applies everywhere and has the same quota for all.
    #[inline]
    pub(crate) fn is_one_plain(&self) -> bool {
        self.is_one_plain
    }

    /// The rules whose paths match.
    pub(crate) fn matching(&self, head: &RequestHead<'_>) -> Matching<'_> {
        if let Some(all) = self.index.everywhere() {
            return Matching::Everywhere(all);
        }
        let found = self.index.matches(head.method(), head.path());
        match *found {
            [] => Matching::None,
            [(only, pattern)] => Matching::One(only, pattern),
            _ => Matching::Several(found),
        }
    }

    /// Calls `f` with each of these rules that applies, in their order, and the head as the rule sees it.
    #[inline(always)]
    pub(crate) fn for_each(
        &self,
        matching: Matching<'_>,
        head: &RequestHead<'_>,
        mut f: impl FnMut(usize, &RequestHead<'_>),
    ) {
        let mut visit = |number: usize, head: &RequestHead<'_>| {
            if self.rules[number].applies(head) {
                f(number, head);
            }
        };
        match matching {
            Matching::None => {}
            Matching::One(number, pattern) => visit(number, &head.with_pattern(pattern)),
            Matching::Everywhere(all) => all.iter().for_each(|number| visit(*number, head)),
            Matching::Several(found) => {
                for (number, pattern) in found {
                    visit(number, &head.with_pattern(pattern));
                }
            }
        }
    }

    #[inline]
    pub(crate) fn rule(&self, number: usize) -> &Compiled {
        &self.rules[number]
    }

    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.rules.iter().position(|rule| rule.name.as_str() == name)
    }
}

impl Compiled {
    fn new(rule: Rule) -> Result<Self, ConfigError> {
        let name = RuleName::new(&rule.name)?;
        if matches!(rule.cost, Cost::Fixed(0)) {
            return Err(ConfigError::ZeroCost { rule: rule.name });
        }
        let check = |tier: Option<&String>, quota: &Quota| {
            quota.check().map_err(|error| ConfigError::Quota {
                rule: rule.name.clone(),
                tier: tier.cloned(),
                error,
            })?;
            match rule.cost {
                Cost::Fixed(cost) if cost > quota.max() => Err(ConfigError::CostAboveQuota {
                    rule: rule.name.clone(),
                    tier: tier.cloned(),
                    cost,
                    max: quota.max(),
                }),
                _ => Ok(NamedQuota { quota: *quota, policy: ietf::policy(name, quota) }),
            }
        };
        let mut quotas = vec![check(None, &rule.quota)?];
        let mut tiers = HashMap::new();
        for (tier, allows) in &rule.tiers {
            let number = match allows {
                Tier::Limited(quota) => {
                    quotas.push(check(Some(tier), quota)?);
                    Some(quotas.len() - 1)
                }
                Tier::Unlimited => None,
            };
            if tiers.insert(tier.clone(), number).is_some() {
                return Err(ConfigError::DuplicateTier { rule: rule.name, tier: tier.clone() });
            }
        }
        Ok(Self {
            name,
            key: rule.key,
            missing_key: rule.missing_key,
            tier_lookup: rule.tier_lookup,
            failure: rule.failure,
            predicates: rule.predicates,
            cost: rule.cost,
            quotas,
            tiers,
        })
    }

    /// Whether the rule applies wherever its path matches, and has the same quota for all.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.predicates.is_empty() && self.tier_lookup.is_none()
    }

    /// Whether the rule, whose path matches, applies.
    #[inline]
    fn applies(&self, head: &RequestHead<'_>) -> bool {
        self.predicates.iter().all(|predicate| predicate(head))
    }

    #[inline(always)]
    pub(crate) fn cost<'a>(&self, head: impl FnOnce() -> RequestHead<'a>) -> u32 {
        match &self.cost {
            Cost::Fixed(cost) => *cost,
            Cost::By(cost) => cost(&head()),
        }
    }

    /// The rule's cost where there is no request to tell it.
    pub(crate) fn fixed_cost(&self) -> u32 {
        match self.cost {
            Cost::Fixed(cost) => cost,
            Cost::By(_) => 1,
        }
    }

    /// The quota of those who are in no tier.
    #[inline]
    pub(crate) fn own_quota(&self) -> &Quota {
        &self.quotas[0].quota
    }

    #[inline]
    pub(crate) fn quota<'a>(&'a self, choice: &'a QuotaChoice) -> &'a Quota {
        match choice {
            QuotaChoice::Own(number) => &self.quotas[*number].quota,
            QuotaChoice::Custom(quota) => quota,
        }
    }

    /// The quota as it stands in `RateLimit-Policy`.
    pub(crate) fn policy(&self, choice: &QuotaChoice) -> HeaderValue {
        match choice {
            QuotaChoice::Own(number) => self.quotas[*number].policy.clone(),
            QuotaChoice::Custom(quota) => ietf::policy(self.name, quota),
        }
    }

    /// The quota of a tier; `None` if it has no limit.
    #[inline]
    pub(crate) fn tier(&self, choice: TierChoice) -> Option<QuotaChoice> {
        match choice {
            TierChoice::Default => Some(QuotaChoice::Own(0)),
            TierChoice::Named(name) => match self.tiers.get(name.as_ref()) {
                Some(number) => number.map(QuotaChoice::Own),
                None => Some(QuotaChoice::Own(0)),
            },
            TierChoice::Custom(Tier::Limited(quota)) => Some(QuotaChoice::Custom(Box::new(quota))),
            TierChoice::Custom(Tier::Unlimited) => None,
        }
    }

    pub(crate) fn has_tier(&self, name: &str) -> bool {
        self.tiers.contains_key(name)
    }
}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rule")
            .field("name", &self.name)
            .field("quota", &self.quotas[0].quota)
            .field("tiers", &self.tiers.keys())
            .finish_non_exhaustive()
    }
}
