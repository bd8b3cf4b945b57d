//! One rule.

use ratekeeper::store::RuleName;
use ratekeeper::{FailurePolicy, MissingKey, Quota, Rule, Tier};

use super::key::{self, unregistered};
use super::mode::{candidates_of, mode_of, share};
use super::quota::{duration, from_text, quota};
use super::settle::settling_of;
use super::{Context, host, matching, path_param};
use crate::model::{CostSpec, FailureSpec, FailureWord, MissingKeyWord, RuleTable, TierSpec};
use crate::read::{At, OneOrMany};
use crate::scope::Scope;
use crate::suggest::{did_you_mean, nearest};

/// A quota of a rule: its own, or that of a tier.
struct Allowance {
    tier: Option<String>,
    quota: Quota,
}

/// The rule, if all of it is valid.
pub(super) fn compile(table: &At<RuleTable>, context: &Context<'_>, scope: &Scope<'_>) -> Option<Rule> {
    let found_before = scope.found();
    let rule = &table.value;
    let own = rule.quota.get().and_then(|spec| quota(spec, &scope.field("quota")));
    let name = rule.name.get().and_then(|name| self::name(name, &scope.field("name")));

    // What is missing has been reported. Stand-ins let the rest be checked nevertheless.
    let mut built = Rule::new(name.unwrap_or("rule"), own.unwrap_or(Quota::per_second(1)));
    let mut allowances: Vec<_> = own.map(|quota| Allowance { tier: None, quota }).into_iter().collect();
    built = matches_of(rule, built, context, scope);
    built = key_of(rule, built, context, scope);
    path_param::check(rule, scope);
    built = tiers_of(rule, built, &mut allowances, context, scope);
    let hold = rule.hold_up_to.get().and_then(|hold| duration(hold, &scope.field("hold-up-to")));
    if let Some(up_to) = hold {
        built = built.hold_up_to(up_to);
    }
    let failure = failure_of(rule, scope);
    built = built.on_store_failure(failure);
    built = cost_of(rule, built, &allowances, failure, context, scope);
    built = settling_of(rule, built, context, scope);
    built = mode_of(rule, built, scope);
    built = candidates_of(rule, built, scope);

    if scope.found() > found_before || own.is_none() || name.is_none() {
        return None;
    }
    // Everything that can be wrong was checked above, where it is in the text. Should a check be missing
    // there, the error is found here, and not when the limiter is built.
    match built.check() {
        Ok(()) => Some(built),
        Err(error) => {
            scope.problem(table.span.clone(), error.to_string());
            None
        }
    }
}

fn name<'a>(name: &'a At<String>, scope: &Scope<'_>) -> Option<&'a str> {
    match RuleName::new(&name.value) {
        Ok(_) => Some(&name.value),
        Err(error) => {
            scope.problem(name.span.clone(), error.to_string());
            None
        }
    }
}

fn matches_of(rule: &RuleTable, mut built: Rule, context: &Context<'_>, scope: &Scope<'_>) -> Rule {
    let targets = rule.matches.get().and_then(|matches| matching::targets(matches, &scope.field("match")));
    built = targets.into_iter().flatten().fold(built, |built, target| target.add_to(built));
    let except = rule.except.get().and_then(|paths| matching::exceptions(paths, &scope.field("except")));
    built = except.into_iter().flatten().fold(built, Rule::except);
    let hosts = rule.host.get().and_then(|hosts| host::hosts(hosts, &scope.field("host")));
    built = hosts.into_iter().flatten().fold(built, Rule::on_host);
    if let Some(names) = rule.when.get() {
        built = predicates(names, built, context, &scope.field("when"));
    }
    if rule.by_hand.copied() != Some(true) {
        return built;
    }
    // A rule that is charged by hand matches nothing, whatever these fields say.
    let said = [
        ("match", rule.matches.get().map(|at| &at.span)),
        ("except", rule.except.get().map(|at| &at.span)),
        ("host", rule.host.get().map(|at| &at.span)),
        ("when", rule.when.get().map(|at| &at.span)),
    ];
    for (field, span) in said {
        if let Some(span) = span {
            let message = "this is in vain, as the rule is charged by hand and matches no request";
            let help = format!("leave out `by-hand`, or `{field}`");
            scope.field(field).problem_with(span.clone(), message, help);
        }
    }
    built.manual()
}

fn predicates(
    names: &At<OneOrMany<String>>,
    mut built: Rule,
    context: &Context<'_>,
    scope: &Scope<'_>,
) -> Rule {
    if names.value.as_slice().is_empty() {
        let help = "without `when` a rule has no predicate".to_owned();
        scope.problem_with(names.span.clone(), "an empty list names no predicate", help);
    }
    for name in names.value.as_slice() {
        match context.registry.find_predicate(&name.value) {
            Some(predicate) => built = built.when(move |head| predicate(head)),
            None => unregistered("predicate", name, &context.registry.predicate_names(), scope),
        }
    }
    built
}

fn key_of(rule: &RuleTable, mut built: Rule, context: &Context<'_>, scope: &Scope<'_>) -> Rule {
    if let Some(key) = rule.key.get().and_then(|key| key::key(key, context, &scope.field("key"))) {
        built = key.add_to(built);
    }
    built.on_missing_key(match rule.on_missing_key.value() {
        None | Some(MissingKeyWord::Shared) => MissingKey::Shared,
        Some(MissingKeyWord::Skip) => MissingKey::Skip,
        Some(MissingKeyWord::Deny) => MissingKey::Deny,
    })
}

fn tiers_of(
    rule: &RuleTable,
    mut built: Rule,
    allowances: &mut Vec<Allowance>,
    context: &Context<'_>,
    scope: &Scope<'_>,
) -> Rule {
    if let Some(tiers) = rule.tiers.get() {
        let scope = scope.field("tiers");
        // The tier of a charge that is made by hand is said with it.
        let is_said = rule.by_hand.copied() == Some(true);
        if rule.tier_by.is_unsaid() && !is_said && !tiers.value.0.is_empty() {
            let (first, _) = &tiers.value.0[0];
            let help = "name a lookup that the application registered, with `tier-by`".to_owned();
            scope.problem_with(first.span.clone(), "nothing tells who is in a tier", help);
        }
        for (name, spec) in &tiers.value.0 {
            let Some(tier) = tier(spec, &scope.field(&name.value)) else { continue };
            if let Tier::Limited(quota) | Tier::Held { quota, .. } = tier {
                allowances.push(Allowance { tier: Some(name.value.clone()), quota });
            }
            built = built.tier(&name.value, tier);
        }
    }
    let Some(lookup) = rule.tier_by.get() else { return built };
    match context.registry.find_tier_lookup(&lookup.value) {
        Some(found) => found.add_to(built),
        None => {
            let scope = scope.field("tier-by");
            unregistered("lookup of tiers", lookup, &context.registry.tier_names(), &scope);
            built
        }
    }
}

fn tier(spec: &At<TierSpec>, scope: &Scope<'_>) -> Option<Tier> {
    match &spec.value {
        TierSpec::Text(text) if text == "unlimited" => Some(Tier::Unlimited),
        TierSpec::Text(text) if nearest(text, ["unlimited"]).is_some() => {
            let message = format!("`{text}` is neither a quota nor `unlimited`");
            scope.problem_with(spec.span.clone(), message, did_you_mean(text, ["unlimited"]));
            None
        }
        TierSpec::Text(text) => from_text(&spec.with(text), scope).map(Tier::from),
        TierSpec::Table(table) => {
            let hold = table.hold_up_to.get().map(|hold| duration(hold, &scope.field("hold-up-to")));
            let tier = Tier::from(quota(table.quota.get()?, &scope.field("quota"))?);
            Some(match hold {
                Some(hold) => tier.hold_up_to(hold?),
                None => tier,
            })
        }
    }
}

fn failure_of(rule: &RuleTable, scope: &Scope<'_>) -> FailurePolicy {
    match rule.on_store_failure.value() {
        None | Some(FailureSpec::Text(FailureWord::Allow)) => FailurePolicy::Allow,
        Some(FailureSpec::Text(FailureWord::Deny)) => FailurePolicy::Deny,
        Some(FailureSpec::Table(table)) => {
            let Some(local) = table.local.get() else { return FailurePolicy::Allow };
            share(local, &scope.field("on-store-failure").field("local"))
                .map_or(FailurePolicy::Allow, FailurePolicy::Local)
        }
    }
}

fn cost_of(
    rule: &RuleTable,
    built: Rule,
    allowances: &[Allowance],
    failure: FailurePolicy,
    context: &Context<'_>,
    scope: &Scope<'_>,
) -> Rule {
    let Some(spec) = rule.cost.get() else { return built };
    let scope = scope.field("cost");
    match &spec.value {
        CostSpec::Number(cost) => {
            check_cost(&spec.with(*cost), allowances, failure, &scope);
            built.cost(*cost)
        }
        CostSpec::Registered(table) => {
            let Some(name) = table.registered.get() else { return built };
            match context.registry.find_cost(&name.value) {
                Some(found) => built.cost_by(move |head| found(head)),
                None => {
                    let scope = scope.field("registered");
                    unregistered("cost", name, &context.registry.cost_names(), &scope);
                    built
                }
            }
        }
    }
}

/// A cost that a quota never holds is never admitted.
fn check_cost(cost: &At<u32>, allowances: &[Allowance], failure: FailurePolicy, scope: &Scope<'_>) {
    let At { span, value: cost } = cost;
    if *cost == 0 {
        scope.problem(span.clone(), "a request that costs 0 is never limited; the least is 1");
    }
    for Allowance { tier, quota } in allowances {
        let whose = tier.as_ref().map_or(String::new(), |tier| format!(" of tier `{tier}`"));
        let max = quota.max();
        if *cost > max {
            let message = format!(
                "a request costs {cost}, but the quota{whose} never holds more than {max}, so nothing would ever be admitted"
            );
            scope.problem(span.clone(), message);
            continue;
        }
        let FailurePolicy::Local(share) = failure else { continue };
        let max = quota.share(share).max();
        if *cost > max {
            let message = format!(
                "a request costs {cost}, but {share} of the quota{whose} never holds more than {max}, so nothing would be admitted when the store fails"
            );
            scope.problem(span.clone(), message);
        }
    }
}
