//! What a request actually cost.

use http::StatusCode;
use ratekeeper::Rule;

use super::Context;
use super::key::unregistered;
use crate::model::{FreeTable, RuleTable, StatusSpec};
use crate::read::{At, OneOrMany};
use crate::scope::Scope;

/// Statuses: one, or a class of them.
#[derive(Clone, Copy, Debug)]
enum Statuses {
    One(StatusCode),
    /// All whose first digit is this.
    Class(u16),
}

impl Statuses {
    fn include(self, status: StatusCode) -> bool {
        match self {
            Self::One(one) => one == status,
            Self::Class(class) => status.as_u16() / 100 == class,
        }
    }
}

/// The rule, settling as the file says.
pub(super) fn settling_of(
    rule: &RuleTable,
    mut built: Rule,
    context: &Context<'_>,
    scope: &Scope<'_>,
) -> Rule {
    if let (Some(_), Some(lookup)) = (rule.free_when.get(), rule.settle_by.get()) {
        let message = "`free-when` and `settle-by` both say what a request has cost; a rule has one of them";
        scope.field("settle-by").problem(lookup.span.clone(), message);
    }
    if let Some(table) = rule.free_when.get()
        && let Some((statuses, free)) = free(table, &scope.field("free-when"))
    {
        built = built.free_when(move |response| {
            statuses.iter().any(|statuses| statuses.include(response.status())) == free
        });
    }
    if let Some(name) = rule.settle_by.get() {
        match context.registry.find_settle(&name.value) {
            Some(settle) => built = built.settle_by(move |response| settle(response)),
            None => {
                let known = context.registry.settle_names();
                unregistered("settling", name, &known, &scope.field("settle-by"));
            }
        }
    }
    match rule.settle_in_handler.copied() {
        Some(true) => built.settle_in_handler(),
        Some(false) | None => built,
    }
}

/// Statuses, and whether it is those that are free, or all others.
fn free(table: &At<FreeTable>, scope: &Scope<'_>) -> Option<(Vec<Statuses>, bool)> {
    let FreeTable { status, status_not } = &table.value;
    if status.is_unread() || status_not.is_unread() {
        return None;
    }
    match (status.get(), status_not.get()) {
        (Some(_), Some(not)) => {
            let message = "`status` says already which responses are free";
            scope.field("status-not").problem(not.span.clone(), message);
            None
        }
        (None, None) => {
            let help = "say which, such as `status = \"5xx\"` or `status-not = 401`".to_owned();
            scope.problem_with(table.span.clone(), "neither `status` nor `status-not` is said", help);
            None
        }
        (Some(list), None) => statuses(list, &scope.field("status")).map(|statuses| (statuses, true)),
        (None, Some(list)) => statuses(list, &scope.field("status-not")).map(|statuses| (statuses, false)),
    }
}

fn statuses(list: &At<OneOrMany<StatusSpec>>, scope: &Scope<'_>) -> Option<Vec<Statuses>> {
    let specs = list.value.as_slice();
    if specs.is_empty() {
        scope.problem(list.span.clone(), "an empty list has no status, so it says nothing");
        return None;
    }
    let read: Vec<_> = specs.iter().filter_map(|spec| self::status(spec, scope)).collect();
    (read.len() == specs.len()).then_some(read)
}

fn status(spec: &At<StatusSpec>, scope: &Scope<'_>) -> Option<Statuses> {
    const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
    match &spec.value {
        StatusSpec::Number(number) => {
            let code = u16::try_from(*number).ok().filter(|code| (100..600).contains(code));
            if let Some(code) = code.and_then(|code| StatusCode::from_u16(code).ok()) {
                return Some(Statuses::One(code));
            }
            let message = format!("{number} is no status of a response; they are from 100 to 599");
            scope.problem(spec.span.clone(), message);
        }
        StatusSpec::Text(text) => {
            if let Some(at) = CLASSES.iter().position(|class| class == text) {
                return u16::try_from(at + 1).ok().map(Statuses::Class);
            }
            let message =
                format!("`{text}` is no status; write a number, such as 304, or a class, such as \"5xx\"");
            let number = text.parse::<u16>().ok().filter(|code| (100..600).contains(code));
            let help = number.map(|code| format!("did you mean {code}, without quotes?"));
            // Any other class is similar by its letters, but means something else.
            let class = || CLASSES.into_iter().find(|class| class.eq_ignore_ascii_case(text));
            let help = help.or_else(|| class().map(|class| format!("did you mean `{class}`?")));
            scope.problem_with(spec.span.clone(), message, help);
        }
    }
    None
}
