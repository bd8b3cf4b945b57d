//! Rules that have been checked, ready to be asked.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use http::HeaderValue;
use tollgate_core::{Charge, Key, Quota, RuleName, Share};

use super::index::{Index, Matches};
use super::map::Map;
use super::matching::Requests;
use super::pattern::Pattern;
use super::{Cost, MissingKey, Mode, Predicate, Role, Rule, Settling, Tier, TierChoice, TierLookup};
use crate::RequestHead;
use crate::error::{ConfigError, LimiterError};
use crate::failure::FailurePolicy;
use crate::headers::ietf;
use crate::key::KeySource;
use crate::limiter::Planned;
use crate::observe::{RuleWatch, SetWatch};
use crate::response_head::ResponseHead;
use crate::settle::Settle;

/// What a [`RuleSet`](super::RuleSet) is made of.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) version: Option<String>,
    pub(crate) watch: SetWatch,
    rules: Vec<Compiled>,
    /// The number of each rule, by its name.
    numbers: Map<&'static str, usize>,
    index: Index,
    /// Whether there is one rule, which applies everywhere and has the same quota for all.
    is_one_plain: bool,
    /// Whether what was charged under one of the rules is settled afterwards.
    is_settled: bool,
}

/// Which rules of a set have hosts, methods and paths that match, by number, and by which pattern.
pub(crate) enum Matching<'a> {
    None,
    One(usize, Option<&'a Pattern>),
    /// These, which match everywhere.
    Everywhere(&'a [usize]),
    Several(Matches<'a>),
}

/// One rule of a set.
#[derive(Clone)]
pub(crate) struct Compiled {
    pub(crate) name: RuleName,
    pub(crate) key: KeySource,
    pub(crate) missing_key: MissingKey,
    pub(crate) tier_lookup: Option<TierLookup>,
    pub(crate) failure: FailurePolicy,
    pub(crate) shows_shadow: bool,
    pub(crate) watch: RuleWatch,
    mode: Mode,
    /// The name under which candidates are counted; none if there are none.
    candidate: Option<RuleName>,
    /// What the index was told of it.
    pub(super) requests: Requests,
    predicates: Vec<Predicate>,
    cost: Cost,
    settling: Settling,
    /// Whether requests are held back that are over a quota.
    holds: bool,
    hold: Duration,
    /// The rule's own quota first, then its tiers'.
    quotas: Vec<NamedQuota>,
    tiers: HashMap<String, Option<usize>>,
    /// The share of each quota that is decided locally; none unless the rule does so.
    local: Vec<NamedQuota>,
}

#[derive(Clone)]
struct NamedQuota {
    quota: Quota,
    /// The quota as it stands in `RateLimit-Policy`.
    policy: HeaderValue,
    /// For how long requests are held back that are over it.
    hold: Duration,
    /// What may be in its place next.
    candidate: Option<Quota>,
}

impl NamedQuota {
    fn new(rule: RuleName, quota: Quota) -> Self {
        Self { quota, policy: ietf::policy(rule, &quota), hold: Duration::ZERO, candidate: None }
    }

    fn share(&self, rule: RuleName, share: Share) -> Self {
        Self::new(rule, self.quota.share(share))
    }
}

/// Which of a rule's quotas applies.
#[derive(Clone, Debug)]
pub(crate) enum QuotaChoice {
    /// One that the rule has.
    Own(usize),
    /// One that was made for this caller, and for how long requests are held back that are over it.
    Custom(Box<(Quota, Duration)>),
}

impl Rules {
    pub(crate) fn new(rules: Vec<Rule>) -> Result<Self, ConfigError> {
        if rules.is_empty() {
            return Err(ConfigError::NoRules);
        }
        let mut index = Index::default();
        let (mut ids, mut numbers) = (HashSet::new(), Map::default());
        let mut compiled = Vec::with_capacity(rules.len());
        for rule in rules {
            let number = compiled.len();
            let requests = rule.requests()?;
            if !requests.by_hand {
                index.add(number, &requests.hosts, &requests.targets);
            }
            let rule = Compiled::new(rule, requests)?;
            // Different names with one number would share their counters, too.
            for name in [Some(rule.name), rule.candidate].into_iter().flatten() {
                if !ids.insert(name.id()) {
                    return Err(ConfigError::DuplicateRule { rule: name.to_string() });
                }
            }
            numbers.insert(rule.name.as_str(), number);
            compiled.push(rule);
        }
        let is_settled = compiled.iter().any(Compiled::is_settled);
        let mut set = Self {
            version: None,
            watch: SetWatch::default(),
            rules: compiled,
            numbers,
            index,
            is_one_plain: false,
            is_settled,
        };
        set.is_one_plain = set.rules.len() == 1 && set.index.everywhere() == Some(&[0]) && set.is_plain(0);
        Ok(set)
    }

    /// Whether there is one rule, which applies everywhere and has the same quota for all.
    #[inline]
    pub(crate) fn is_one_plain(&self) -> bool {
        self.is_one_plain
    }

    /// Whether a rule applies wherever its path matches, has the same quota for all, and nothing is left to do when a
    /// request has gone on.
    #[inline]
    pub(crate) fn is_plain(&self, number: usize) -> bool {
        // One rule that is settled is enough for an account of all.
        self.rules[number].is_plain() && !self.is_settled
    }

    /// Whether what was charged under one of the rules is settled afterwards.
    #[inline]
    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// The rules whose hosts, methods and paths match.
    pub(crate) fn matching(&self, head: &RequestHead<'_>) -> Matching<'_> {
        if let Some(all) = self.index.everywhere() {
            return Matching::Everywhere(all);
        }
        let found = self.matches(head);
        match *found {
            [] => Matching::None,
            [(only, pattern)] => Matching::One(only, pattern),
            _ => Matching::Several(found),
        }
    }

    /// The same, by number.
    #[inline]
    pub(super) fn matches(&self, head: &RequestHead<'_>) -> Matches<'_> {
        self.index.matches(head)
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

    /// What is planned to be charged under a rule.
    #[inline]
    pub(crate) fn charge_of<'a>(&'a self, planned: &'a Planned) -> Charge<'a> {
        let rule = self.rule(planned.rule);
        let (name, quota) = match planned.role {
            Role::Candidate => rule.candidate(&planned.quota),
            Role::Enforced | Role::Shadow => (rule.name, rule.quota(&planned.quota)),
        };
        Charge::new(name, &planned.key, quota).cost(planned.cost)
    }

    /// The name under which it is charged.
    #[inline]
    pub(crate) fn name_of(&self, planned: &Planned) -> RuleName {
        self.charge_of(planned).rule
    }

    /// The rules, in their order.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Compiled> {
        self.rules.iter()
    }

    /// Whether a rule decides locally when the store fails.
    pub(crate) fn decides_locally(&self) -> bool {
        self.rules.iter().any(|rule| matches!(rule.failure, FailurePolicy::Local(_)))
    }

    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.numbers.get(name).copied()
    }

    pub(crate) fn find_or(&self, name: &str) -> Result<usize, LimiterError> {
        self.find(name).ok_or_else(|| LimiterError::UnknownRule(name.to_owned()))
    }
}

impl Compiled {
    fn new(rule: Rule, requests: Requests) -> Result<Self, ConfigError> {
        let name = RuleName::new(&rule.name)?;
        if matches!(rule.cost, Cost::Fixed(0)) {
            return Err(ConfigError::ZeroCost { rule: rule.name });
        }
        let check = |tier: Option<&String>, quota: &Quota, hold: Duration| {
            quota.check().map_err(|error| ConfigError::Quota {
                rule: rule.name.clone(),
                tier: tier.cloned(),
                error,
            })?;
            if let Cost::Fixed(cost) = rule.cost {
                let (max, place) = (quota.max(), || (rule.name.clone(), tier.cloned()));
                if cost > max {
                    let (rule, tier) = place();
                    return Err(ConfigError::CostAboveQuota { rule, tier, cost, max });
                }
                if let FailurePolicy::Local(share) = rule.failure {
                    let max = quota.share(share).max();
                    if cost > max {
                        let (rule, tier) = place();
                        return Err(ConfigError::CostAboveShare { rule, tier, share, cost, max });
                    }
                }
            }
            Ok(NamedQuota { hold, ..NamedQuota::new(name, *quota) })
        };
        let mut quotas = vec![check(None, &rule.quota, rule.hold)?];
        let mut tiers = HashMap::new();
        for (tier, allows) in &rule.tiers {
            let number = match allows {
                Tier::Limited(quota) => {
                    quotas.push(check(Some(tier), quota, rule.hold)?);
                    Some(quotas.len() - 1)
                }
                Tier::Held { quota, up_to } => {
                    quotas.push(check(Some(tier), quota, *up_to)?);
                    Some(quotas.len() - 1)
                }
                Tier::Unlimited => None,
            };
            if tiers.insert(tier.clone(), number).is_some() {
                return Err(ConfigError::DuplicateTier { rule: rule.name, tier: tier.clone() });
            }
        }
        let mut candidate = None;
        let of_tiers = rule.tier_candidates.iter().map(|(tier, quota)| (Some(tier), quota));
        for (tier, quota) in rule.candidate.iter().map(|quota| (None, quota)).chain(of_tiers) {
            let number = match tier {
                None => 0,
                Some(tier) => match tiers.get(tier) {
                    Some(Some(number)) => *number,
                    _ => {
                        return Err(ConfigError::CandidateOfNoTier { rule: rule.name, tier: tier.clone() });
                    }
                },
            };
            quotas[number].candidate = Some(check(tier, quota, Duration::ZERO)?.quota);
            candidate = Some(RuleName::new(&format!("{name}~candidate"))?);
        }
        let local = match rule.failure {
            FailurePolicy::Local(share) => quotas.iter().map(|own| own.share(name, share)).collect(),
            _ => Vec::new(),
        };
        Ok(Self {
            name,
            key: rule.key,
            missing_key: rule.missing_key,
            tier_lookup: rule.tier_lookup,
            failure: rule.failure,
            shows_shadow: rule.shows_shadow,
            watch: RuleWatch::new(name),
            mode: rule.mode,
            candidate,
            requests,
            predicates: rule.predicates,
            cost: rule.cost,
            settling: rule.settling,
            holds: quotas.iter().any(|quota| !quota.hold.is_zero()),
            hold: rule.hold,
            quotas,
            tiers,
            local,
        })
    }

    #[inline]
    fn is_plain(&self) -> bool {
        self.predicates.is_empty()
            && self.tier_lookup.is_none()
            && !self.holds
            && self.mode == Mode::Enforce
            && self.candidate.is_none()
    }

    fn is_settled(&self) -> bool {
        self.settling.in_handler || self.settling.by_response.is_some()
    }

    /// What becomes of what was charged, by the response.
    pub(crate) fn settle(&self, response: &ResponseHead<'_>) -> Settle {
        self.settling.by_response.as_ref().map_or(Settle::Keep, |settle| settle(response))
    }

    /// Whether the rule, whose path matches, applies.
    #[inline]
    pub(super) fn applies(&self, head: &RequestHead<'_>) -> bool {
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
            QuotaChoice::Custom(custom) => &custom.0,
        }
    }

    /// Whether what it says of a key counts.
    #[inline]
    pub(crate) fn role(&self, key: &Key) -> Role {
        self.mode.role(self.name, key)
    }

    /// Whether it is charged by hand, so that no request matches it.
    pub(crate) fn is_by_hand(&self) -> bool {
        self.requests.by_hand
    }

    /// Whether it counts for everybody.
    pub(crate) fn is_enforced(&self) -> bool {
        self.mode == Mode::Enforce
    }

    /// The name under which candidates are counted, if there are any.
    pub(crate) const fn candidate_name(&self) -> Option<RuleName> {
        self.candidate
    }

    /// Whether there is a quota that may be the next.
    #[inline]
    pub(crate) fn has_candidate(&self, choice: &QuotaChoice) -> bool {
        matches!(choice, QuotaChoice::Own(number) if self.quotas[*number].candidate.is_some())
    }

    /// The quota that may be the next, and the name under which it is counted.
    pub(super) fn candidate<'a>(&'a self, choice: &'a QuotaChoice) -> (RuleName, &'a Quota) {
        let candidate = match choice {
            QuotaChoice::Own(number) => self.quotas[*number].candidate.as_ref(),
            QuotaChoice::Custom(_) => None,
        };
        match (self.candidate, candidate) {
            (Some(name), Some(quota)) => (name, quota),
            _ => (self.name, self.quota(choice)),
        }
    }

    /// For how long requests are held back that are over the quota.
    pub(crate) fn hold(&self, choice: &QuotaChoice) -> Duration {
        match choice {
            QuotaChoice::Own(number) => self.quotas[*number].hold,
            QuotaChoice::Custom(custom) => custom.1,
        }
    }

    /// The quota as it stands in `RateLimit-Policy`.
    pub(crate) fn policy(&self, choice: &QuotaChoice) -> HeaderValue {
        match choice {
            QuotaChoice::Own(number) => self.quotas[*number].policy.clone(),
            QuotaChoice::Custom(custom) => ietf::policy(self.name, &custom.0),
        }
    }

    /// The share of the quota that is decided locally when the store fails; `None` if the rule does otherwise.
    pub(crate) fn local_quota(&self, choice: &QuotaChoice) -> Option<Quota> {
        match (self.failure, choice) {
            (FailurePolicy::Local(_), QuotaChoice::Own(number)) => Some(self.local[*number].quota),
            (FailurePolicy::Local(share), QuotaChoice::Custom(custom)) => Some(custom.0.share(share)),
            _ => None,
        }
    }

    /// That share as it stands in `RateLimit-Policy`.
    pub(crate) fn local_policy(&self, choice: &QuotaChoice) -> Option<HeaderValue> {
        match (self.failure, choice) {
            (FailurePolicy::Local(_), QuotaChoice::Own(number)) => Some(self.local[*number].policy.clone()),
            _ => self.local_quota(choice).map(|quota| ietf::policy(self.name, &quota)),
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
            TierChoice::Custom(Tier::Limited(quota)) => {
                Some(QuotaChoice::Custom(Box::new((quota, self.hold))))
            }
            TierChoice::Custom(Tier::Held { quota, up_to }) => {
                Some(QuotaChoice::Custom(Box::new((quota, up_to))))
            }
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
