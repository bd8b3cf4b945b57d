//! The path parameters that keys name.

use crate::model::{KeyPart, MatchSpec, RuleTable};
use crate::read::At;
use crate::scope::Scope;
use crate::suggest::{did_you_mean, nearest};

/// Reports parameters that no path of the rule has: no request would have such a key. If a path is of any
/// length, a parameter may belong to a route of the application below it, unless it is similar to one of the
/// rule's.
pub(super) fn check(rule: &RuleTable, scope: &Scope<'_>) {
    let Some(matches) = rule.matches.get() else { return };
    let (mut paths, mut is_open) = (Vec::new(), false);
    for spec in matches.value.as_slice() {
        match &spec.value {
            MatchSpec::Text(text) => paths.push(text.as_str()),
            MatchSpec::Table(table) => match table.path.get() {
                Some(list) => paths.extend(list.value.as_slice().iter().map(|path| path.value.as_str())),
                None => is_open = true,
            },
        }
    }
    // A text without a path is a method.
    is_open |= paths.is_empty() || paths.iter().any(|path| !path.contains('/') || path.contains("/{*"));
    let known: Vec<_> = paths.into_iter().flat_map(parameters).collect();
    let mut taken = Vec::new();
    rule.key
        .get()
        .into_iter()
        .flat_map(|key| key.value.as_slice())
        .for_each(|part| taken_by(&part.value, &mut taken));
    for name in taken {
        // Short names are similar to each other, whatever they mean.
        let is_similar = || name.value.len() > 3 && nearest(&name.value, known.iter().copied()).is_some();
        if !known.contains(&&*name.value) && (!is_open || is_similar()) {
            let message = format!("no path of this rule has the parameter `{}`", name.value);
            let help = did_you_mean(&name.value, known.iter().copied());
            scope.field("key").field("path-param").problem_with(name.span.clone(), message, help);
        }
    }
}

/// The parameters that a key takes.
fn taken_by<'a>(part: &'a KeyPart, taken: &mut Vec<&'a At<String>>) {
    match part {
        KeyPart::PathParam(table) => taken.extend(table.path_param.get()),
        KeyPart::Required(table) => table.required.value().into_iter().for_each(|part| taken_by(part, taken)),
        KeyPart::FirstOf(table) => {
            let parts = table.first_of.value().into_iter().flatten();
            parts.for_each(|part| taken_by(&part.value, taken));
        }
        _ => {}
    }
}

/// The names of a path's parameters: `id` in `/users/{id}`, `rest` in `/files/{*rest}`.
fn parameters(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|segment| {
        let name = segment.strip_prefix('{')?.strip_suffix('}')?;
        Some(name.strip_prefix('*').unwrap_or(name))
    })
}
