//! Rules that have been checked, ready for use.

use std::collections::HashSet;

use super::compiled::Compiled;
use super::index::{Index, Matches};
use super::map::Map;
use super::{FailurePolicy, Rule};
use crate::error::{ConfigError, LimiterError};
use crate::observe::SetWatch;
use crate::request::RequestHead;

/// The contents of a [`RuleSet`](super::RuleSet).
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) version: Option<String>,
    pub(crate) watch: SetWatch,
    rules: Vec<Compiled>,
    /// The number of each rule, by its name.
    numbers: Map<&'static str, usize>,
    index: Index,
    /// Whether charges under any of the rules are settled afterwards.
    is_settled: bool,
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
            if !requests.manual {
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
        Ok(Self { version: None, watch: SetWatch::default(), rules: compiled, numbers, index, is_settled })
    }

    /// Whether charges under any of the rules are settled afterwards.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// The rules whose hosts, methods and paths match, as single matches.
    pub(super) fn matches(&self, head: &RequestHead<'_>) -> Matches<'_> {
        self.index.matches(head)
    }

    /// Calls `f` with each rule that matches, in order, and with the head as the rule sees it.
    #[inline]
    pub(crate) fn for_each_match(&self, head: &RequestHead<'_>, mut f: impl FnMut(usize, &RequestHead<'_>)) {
        let mut visit = |number: usize, head: &RequestHead<'_>| {
            if self.rules[number].applies(head) {
                f(number, head);
            }
        };
        if let Some(all) = self.index.everywhere() {
            return all.iter().for_each(|number| visit(*number, head));
        }
        for matched in self.matches(head).chunk_by(|(a, _), (b, _)| a == b) {
            visit(matched[0].0, &head.with_matched(matched));
        }
    }

    #[inline]
    pub(crate) fn rule(&self, number: usize) -> &Compiled {
        &self.rules[number]
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
