//! The mode of a rule: whether it is enforced, and its candidate.

use ratekeeper::{Mode, Rule, Share};

use super::quota::quota;
use crate::model::{CostSpec, ModeSpec, ModeWord, QuotaSpec, RuleTable, TierSpec};
use crate::read::At;
use crate::scope::Scope;

pub(super) fn mode_of(rule: &RuleTable, built: Rule, scope: &Scope<'_>) -> Rule {
    let mode = match rule.mode.value() {
        None | Some(ModeSpec::Text(ModeWord::Enforce)) => Mode::Enforce,
        Some(ModeSpec::Text(ModeWord::Shadow)) => Mode::Shadow,
        Some(ModeSpec::Table(table)) => table
            .enforce_for
            .get()
            .and_then(|text| share(text, &scope.field("mode").field("enforce-for")))
            .map_or(Mode::Enforce, Mode::EnforceFor),
    };
    if let (Mode::Enforce, Some(At { span, value: true })) = (mode, rule.show_in_shadow.get())
        && !rule.mode.is_unread()
    {
        let help = "say `mode = \"shadow\"`, or leave it out".to_owned();
        scope.field("show-in-shadow").problem_with(
            span.clone(),
            "this is in vain, as the rule is enforced for everybody",
            help,
        );
    }
    built.mode(mode).show_in_shadow(rule.show_in_shadow.copied().unwrap_or(false))
}

/// The quotas that run in shadow beside those in force.
pub(super) fn candidates_of(rule: &RuleTable, mut built: Rule, scope: &Scope<'_>) -> Rule {
    let candidate = |spec: &At<QuotaSpec>, scope: &Scope<'_>| {
        let found = quota(spec, scope)?;
        if let Some(CostSpec::Number(cost)) = rule.cost.value() {
            let max = found.max();
            if *cost > max {
                let message = format!(
                    "a request costs {cost}, but this never holds more than {max}, so nothing would ever be admitted"
                );
                scope.problem(spec.span.clone(), message);
                return None;
            }
        }
        Some(found)
    };
    if let Some(quota) = rule.candidate.get().and_then(|spec| candidate(spec, &scope.field("candidate"))) {
        built = built.candidate(quota);
    }
    for (name, spec) in rule.tiers.get().into_iter().flat_map(|tiers| &tiers.value.0) {
        let TierSpec::Table(table) = &spec.value else { continue };
        let scope = scope.field("tiers").field(&name.value).field("candidate");
        if let Some(quota) = table.candidate.get().and_then(|spec| candidate(spec, &scope)) {
            built = built.candidate_of_tier(&name.value, quota);
        }
    }
    built
}

/// A share, such as `10%` or `1/4`.
pub(super) fn share(text: &At<String>, scope: &Scope<'_>) -> Option<Share> {
    match text.value.parse() {
        Ok(share) => Some(share),
        Err(error) => {
            scope.problem(text.span.clone(), format!("`{}` is no share: {error}", text.value));
            None
        }
    }
}
