//! The path parameters that keys name.

use crate::model::{KeyPart, MatchSpec, RuleTable};
use crate::scope::Scope;
use crate::suggest::{did_you_mean, nearest};

/// Reports misspelled parameters: those similar to a parameter in a path of the rule, but equal to none. With
/// such a key no request would have it. A parameter similar to none may belong to a route of the application.
pub(super) fn check(rule: &RuleTable, scope: &Scope<'_>) {
    let Some(matches) = rule.matches.get() else { return };
    let mut known = Vec::new();
    for spec in matches.value.as_slice() {
        match &spec.value {
            MatchSpec::Text(text) => known.extend(parameters(text)),
            MatchSpec::Table(table) => {
                let paths = table.path.get().into_iter().flat_map(|paths| paths.value.as_slice());
                known.extend(paths.flat_map(|path| parameters(&path.value)));
            }
        }
    }
    for part in rule.key.get().into_iter().flat_map(|key| key.value.as_slice()) {
        let KeyPart::PathParam(table) = &part.value else { continue };
        let Some(name) = table.path_param.get() else { continue };
        // Short names are similar to each other, whatever they mean.
        let is_known = name.value.len() <= 3 || known.contains(&&*name.value);
        if !is_known && nearest(&name.value, known.iter().copied()).is_some() {
            let message = format!("no path of this rule has the parameter `{}`", name.value);
            let help = did_you_mean(&name.value, known.iter().copied());
            scope.field("key").field("path-param").problem_with(name.span.clone(), message, help);
        }
    }
}

/// The names of a path's parameters: `id` in `/users/{id}`, `rest` in `/files/{*rest}`.
fn parameters(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|segment| {
        let name = segment.strip_prefix('{')?.strip_suffix('}')?;
        Some(name.strip_prefix('*').unwrap_or(name))
    })
}
