//! Rules that have been checked, ready for use.

use std::collections::HashSet;

use ratekeeper_core::{Charge, RuleName};

use super::compiled::Compiled;
use super::index::{Index, Match, Matches};
use super::map::Map;
use super::{Role, Rule};
use crate::RequestHead;
use crate::error::{ConfigError, LimiterError};
use crate::failure::FailurePolicy;
use crate::limiter::Planned;
use crate::observe::SetWatch;

/// The contents of a [`RuleSet`](super::RuleSet).
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) version: Option<String>,
    pub(crate) watch: SetWatch,
    rules: Vec<Compiled>,
    /// The number of each rule, by its name.
    numbers: Map<&'static str, usize>,
    index: Index,
    /// Whether there is just one rule, which applies everywhere and has the same quota for all callers.
    is_one_plain: bool,
    /// Whether charges under any of the rules are settled afterwards.
    is_settled: bool,
}

/// The rules of a set whose hosts, methods and paths match, by number, and by which pattern.
pub(crate) enum Matching<'a> {
    None,
    One(Match<'a>),
    /// These rules, which match everywhere.
    Everywhere(&'a [usize]),
    Several(Matches<'a>),
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
            // Different names with the same id would share their counters, too.
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

    /// Whether there is just one rule, which applies everywhere and has the same quota for all callers.
    #[inline]
    pub(crate) fn is_one_plain(&self) -> bool {
        self.is_one_plain
    }

    /// Whether a rule applies wherever its path matches, has the same quota for all callers, and leaves
    /// nothing to do after a request was forwarded.
    #[inline]
    pub(crate) fn is_plain(&self, number: usize) -> bool {
        // One rule that is settled is enough to need an account for all.
        self.rules[number].is_plain() && !self.is_settled
    }

    /// Whether charges under any of the rules are settled afterwards.
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
            [only] => Matching::One(only),
            _ => Matching::Several(found),
        }
    }

    /// The same, as single matches.
    #[inline]
    pub(super) fn matches(&self, head: &RequestHead<'_>) -> Matches<'_> {
        self.index.matches(head)
    }

    /// Calls `f` with each of these rules that applies, in order, and with the head as the rule sees it.
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
            Matching::One(matched) => visit(matched.0, &head.with_matched(&[matched])),
            Matching::Everywhere(all) => all.iter().for_each(|number| visit(*number, head)),
            Matching::Several(found) => {
                for matched in found.chunk_by(|(a, _), (b, _)| a == b) {
                    visit(matched[0].0, &head.with_matched(matched));
                }
            }
        }
    }

    #[inline]
    pub(crate) fn rule(&self, number: usize) -> &Compiled {
        &self.rules[number]
    }

    /// The charge for a planned entry.
    #[inline]
    pub(crate) fn charge_of<'a>(&'a self, planned: &'a Planned) -> Charge<'a> {
        let rule = self.rule(planned.rule);
        let (name, quota) = match planned.role {
            Role::Candidate => rule.candidate(&planned.quota),
            Role::Enforced | Role::Shadow => (rule.name, rule.quota(&planned.quota)),
        };
        Charge::new(name, &planned.key, quota).cost(planned.cost)
    }

    /// The name under which a planned entry is charged.
    #[inline]
    pub(crate) fn name_of(&self, planned: &Planned) -> RuleName {
        self.charge_of(planned).rule
    }

    /// The rules, in order.
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
