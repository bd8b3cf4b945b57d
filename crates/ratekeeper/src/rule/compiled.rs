//! One rule that has been checked.

use std::collections::HashMap;
use std::time::Duration;

use http::HeaderValue;
use ratekeeper_core::{Algorithm, Charge, Key, Quota, RuleName, Share};

use super::matching::Requests;
use super::policy;
use super::{
    Cost, FailurePolicy, MissingKey, Mode, Predicate, Rule, Settle, Settling, Tier, TierChoice, TierLookup,
};
use crate::error::ConfigError;
use crate::key::KeySource;
use crate::observe::{Role, RuleWatch};
use crate::request::RequestHead;
use crate::request::ResponseHead;

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
    /// The name under which candidates are counted. `None` if there are none.
    pub(super) candidate: Option<RuleName>,
    /// What the index contains for this rule.
    pub(super) requests: Requests,
    predicates: Vec<Predicate>,
    cost: Cost,
    settling: Settling,
    hold: Duration,
    /// The rule's own quota first, then its tiers'.
    quotas: Vec<NamedQuota>,
    tiers: HashMap<String, Option<usize>>,
    /// The share of each quota for local decisions. Empty unless the rule decides locally.
    local: Vec<NamedQuota>,
}

#[derive(Clone)]
struct NamedQuota {
    quota: Quota,
    /// The quota as written in `RateLimit-Policy`.
    policy: HeaderValue,
    /// For how long requests over it are held back.
    hold: Duration,
    /// Its candidate.
    candidate: Option<Quota>,
}

impl NamedQuota {
    fn new(rule: RuleName, quota: Quota) -> Self {
        Self { quota, policy: policy::policy(rule, &quota), hold: Duration::ZERO, candidate: None }
    }

    fn share(&self, rule: RuleName, share: Share) -> Self {
        Self::new(rule, self.quota.share(share))
    }
}

/// Which of a rule's quotas applies.
#[derive(Clone, Debug)]
pub(crate) enum QuotaChoice {
    /// One of the rule's quotas, by number.
    Own(usize),
    /// A quota made for this caller, and for how long requests over it are held back.
    Custom(Box<(Quota, Duration)>),
}

impl Compiled {
    pub(super) fn new(rule: Rule, requests: Requests) -> Result<Self, ConfigError> {
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
            if let Some(reason) = cannot_hold(quota, hold) {
                return Err(ConfigError::Hold { rule: rule.name.clone(), tier: tier.cloned(), reason });
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
        // A tier of a rule that is charged by hand is said with the charge.
        if let (Some((tier, _)), None, false) = (rule.tiers.first(), &rule.tier_lookup, rule.manual) {
            return Err(ConfigError::TierWithoutLookup { rule: rule.name, tier: tier.clone() });
        }
        if let Some((param, known)) = requests.unknown_param(&rule.key) {
            return Err(ConfigError::PathParam { rule: rule.name, param, known });
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
            hold: rule.hold,
            quotas,
            tiers,
            local,
        })
    }

    pub(super) fn is_settled(&self) -> bool {
        self.settling.in_handler || self.settling.by_response.is_some()
    }

    /// How the response settles the charge.
    pub(crate) fn settle(&self, response: &ResponseHead<'_>) -> Settle {
        self.settling.by_response.as_ref().map_or(Settle::Keep, |settle| settle(response))
    }

    /// Whether the rule, whose path matches, applies.
    pub(super) fn applies(&self, head: &RequestHead<'_>) -> bool {
        self.requests.exception(head).is_none() && self.predicates.iter().all(|predicate| predicate(head))
    }

    #[inline]
    pub(crate) fn cost<'a>(&self, head: impl FnOnce() -> RequestHead<'a>) -> u32 {
        match &self.cost {
            Cost::Fixed(cost) => *cost,
            Cost::By(cost) => cost(&head()),
        }
    }

    /// The rule's cost when there is no request to determine it.
    pub(crate) fn fixed_cost(&self) -> u32 {
        match self.cost {
            Cost::Fixed(cost) => cost,
            Cost::By(_) => 1,
        }
    }

    /// The quota of callers who are in no tier.
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

    /// The role of a charge to this key: enforced or in shadow.
    #[inline]
    pub(crate) fn role(&self, key: &Key) -> Role {
        self.mode.role(self.name, key)
    }

    /// Whether it is charged manually, so that no request matches it.
    pub(crate) fn is_manual(&self) -> bool {
        self.requests.manual
    }

    /// The name under which candidates are counted, if there are any.
    pub(crate) const fn candidate_name(&self) -> Option<RuleName> {
        self.candidate
    }

    /// Whether the quota has a candidate.
    #[inline]
    pub(crate) fn has_candidate(&self, choice: &QuotaChoice) -> bool {
        matches!(choice, QuotaChoice::Own(number) if self.quotas[*number].candidate.is_some())
    }

    /// The candidate quota, and the name under which it is counted.
    pub(crate) fn candidate<'a>(&'a self, choice: &'a QuotaChoice) -> (RuleName, &'a Quota) {
        let candidate = match choice {
            QuotaChoice::Own(number) => self.quotas[*number].candidate.as_ref(),
            QuotaChoice::Custom(_) => None,
        };
        match (self.candidate, candidate) {
            (Some(name), Some(quota)) => (name, quota),
            _ => (self.name, self.quota(choice)),
        }
    }

    /// For how long requests over the quota are held back.
    #[inline]
    pub(crate) fn hold(&self, choice: &QuotaChoice) -> Option<Duration> {
        let hold = match choice {
            QuotaChoice::Own(number) => self.quotas[*number].hold,
            QuotaChoice::Custom(custom) => custom.1,
        };
        (!hold.is_zero()).then_some(hold)
    }

    /// The quota as written in `RateLimit-Policy`.
    pub(crate) fn policy(&self, choice: &QuotaChoice) -> HeaderValue {
        match choice {
            QuotaChoice::Own(number) => self.quotas[*number].policy.clone(),
            QuotaChoice::Custom(custom) => policy::policy(self.name, &custom.0),
        }
    }

    /// The share of the quota for local decisions when the store fails. `None` if the rule does not decide
    /// locally.
    pub(crate) fn local_quota(&self, choice: &QuotaChoice) -> Option<Quota> {
        match (self.failure, choice) {
            (FailurePolicy::Local(_), QuotaChoice::Own(number)) => Some(self.local[*number].quota),
            (FailurePolicy::Local(share), QuotaChoice::Custom(custom)) => Some(custom.0.share(share)),
            _ => None,
        }
    }

    /// The local share as written in `RateLimit-Policy`.
    pub(crate) fn local_policy(&self, choice: &QuotaChoice) -> Option<HeaderValue> {
        match (self.failure, choice) {
            (FailurePolicy::Local(_), QuotaChoice::Own(number)) => Some(self.local[*number].policy.clone()),
            _ => self.local_quota(choice).map(|quota| policy::policy(self.name, &quota)),
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

/// Why requests over a quota cannot be held back for this long.
fn cannot_hold(quota: &Quota, hold: Duration) -> Option<String> {
    if hold.is_zero() {
        return None;
    }
    match quota.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket if hold > Charge::MAX_WAIT => {
            Some(format!("requests cannot be held back for longer than {} s", Charge::MAX_WAIT.as_secs()))
        }
        Algorithm::TokenBucket | Algorithm::LeakyBucket => None,
        other => Some(format!(
            "a {other} cannot hold requests back: use a token bucket or a leaky bucket, or remove `hold_up_to`"
        )),
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
