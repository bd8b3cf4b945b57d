//! From the model of a file to rules: what each text means, and whether everything fits together.

mod host;
mod key;
mod matching;
mod mode;
mod path_param;
mod proxies;
mod quota;
mod rule;
mod settle;

use std::collections::{HashMap, HashSet};

use ratekeeper::Rule;

use self::proxies::FileProxies;
use crate::model::{File, RuleTable, Rules, TierSpec};
use crate::registry::Registry;
use crate::scope::Scope;
use crate::settings::{LayerSettings, LimiterSettings};

/// What the rules of a file have in common.
pub(crate) struct Context<'a> {
    registry: &'a Registry,
    proxies: FileProxies,
}

/// The rules and settings of a file. If anything was reported, they are incomplete.
pub(crate) fn compile(
    file: &File,
    registry: &Registry,
    scope: &Scope<'_>,
) -> (Vec<Rule>, LayerSettings, LimiterSettings) {
    let context = Context { registry, proxies: FileProxies::new(file, scope) };
    let layer = file.layer.value().map(LayerSettings::new).unwrap_or_default();
    let limiter = file.limiter.get().map(|limiter| LimiterSettings::new(limiter, scope)).unwrap_or_default();
    let mut rules = Vec::new();
    if let Some(list) = file.rules.get() {
        if list.value.0.is_empty() {
            let message = "there are no rules, so nothing would be limited";
            scope.field("rules").problem(list.span.clone(), message);
        }
        rules = list
            .value
            .labelled()
            .filter_map(|(label, table)| rule::compile(table, &context, &scope.rule(label)))
            .collect();
        check_names(&list.value, scope);
    }
    (rules, layer, limiter)
}

/// Two rules with one name would share their counters.
fn check_names(rules: &Rules, scope: &Scope<'_>) {
    let mut seen = HashMap::new();
    for (label, rule) in rules.labelled() {
        let Some(name) = rule.value.name.get() else { continue };
        if let Some(first) = seen.get(&name.value) {
            let message = "two rules have this name; they would share their counters";
            scope.rule(label).field("name").problem_twice(name.span.clone(), message, Clone::clone(first));
        } else {
            seen.insert(&name.value, name.span.clone());
        }
    }
    let with_candidates: HashSet<&str> = rules
        .labelled()
        .filter(|(_, rule)| has_candidate(&rule.value))
        .filter_map(|(_, rule)| rule.value.name.value().map(String::as_str))
        .collect();
    for (label, rule) in rules.labelled() {
        let Some(name) = rule.value.name.get() else { continue };
        let Some(of) = name.value.strip_suffix("~candidate") else { continue };
        if with_candidates.contains(of) {
            let message = format!("this is the name under which the candidate of `{of}` is counted");
            scope.rule(label).field("name").problem(name.span.clone(), message);
        }
    }
}

/// Whether the rule has a candidate, for itself or for a tier.
fn has_candidate(rule: &RuleTable) -> bool {
    let of_tier = |spec: &TierSpec| matches!(spec, TierSpec::Table(table) if !table.candidate.is_unsaid());
    let tiers = rule.tiers.value().map_or(&[][..], |tiers| &tiers.0);
    !rule.candidate.is_unsaid() || tiers.iter().any(|(_, spec)| of_tier(&spec.value))
}
