//! Quotas.

use std::time::Duration;

use ratekeeper::{Quota, QuotaError, SECOND, store::Algorithm};

use crate::duration;
use crate::model::{AlgorithmWord, QuotaSpec, QuotaTable};
use crate::read::At;
use crate::scope::Scope;
use crate::suggest::did_you_mean;
use crate::tree::Span;

/// A valid quota.
pub(super) fn quota(spec: &At<QuotaSpec>, scope: &Scope<'_>) -> Option<Quota> {
    match &spec.value {
        QuotaSpec::Text(text) => from_text(&spec.with(text), scope),
        QuotaSpec::Table(table) => from_table(table, &spec.span, scope),
    }
}

/// A quota from its text.
pub(super) fn from_text(text: &At<&String>, scope: &Scope<'_>) -> Option<Quota> {
    let error = match text.value.parse::<Quota>() {
        Ok(quota) => return Some(quota),
        Err(error) => error,
    };
    match error.quota_error() {
        Some(error) => scope.problem(text.span.clone(), error.to_string()),
        None => scope.problem_with(text.span.clone(), error.to_string(), misspelt(text.value)),
    }
    None
}

/// A suggestion for the first word that is similar to one of a quota's words, but is none.
fn misspelt(text: &str) -> Option<String> {
    let known = || {
        let algorithms = Algorithm::ALL.into_iter().map(Algorithm::name);
        duration::units().chain(algorithms).chain(["per", "burst", "capacity"])
    };
    let mut words = text.split(|c: char| !(c.is_alphabetic() || c == '-' || c == '_')).filter(|word| {
        // A letter or two is similar to everything.
        word.len() > 2 && !known().any(|known| known == *word)
    });
    words.find_map(|word| did_you_mean(word, known()))
}

fn from_table(table: &QuotaTable, span: &Span, scope: &Scope<'_>) -> Option<Quota> {
    let period = table.period.get().map(|period| duration(period, &scope.field("period")));
    if table.algorithm.is_unread() || table.burst.is_unread() || table.capacity.is_unread() {
        return None;
    }
    // If the period cannot be read, a stand-in helps to find what else is wrong.
    let limit = table.limit.copied()?;
    let (is_known, period) = match period.flatten() {
        Some(period) => (true, period),
        None => (false, SECOND),
    };
    let mut quota = match table.algorithm.value() {
        None | Some(AlgorithmWord::TokenBucket) => Quota::token_bucket(limit, period),
        Some(AlgorithmWord::FixedWindow) => Quota::fixed_window(limit, period),
        Some(AlgorithmWord::SlidingWindow) => Quota::sliding_window(limit, period),
        Some(AlgorithmWord::SlidingLog) => Quota::sliding_log(limit, period),
        Some(AlgorithmWord::LeakyBucket) => Quota::leaky_bucket(limit, period),
    };
    if let Some(burst) = table.burst.copied() {
        quota = quota.burst(burst);
    }
    if let Some(capacity) = table.capacity.copied() {
        quota = quota.capacity(capacity);
    }
    let Err(error) = quota.check() else { return is_known.then_some(quota) };
    let (field, place) = match error {
        QuotaError::ZeroLimit => ("limit", table.limit.get().map(|at| &at.span)),
        QuotaError::ZeroBurst | QuotaError::BurstWithout(_) => {
            ("burst", table.burst.get().map(|at| &at.span))
        }
        QuotaError::ZeroCapacity | QuotaError::CapacityWithout(_) => {
            ("capacity", table.capacity.get().map(|at| &at.span))
        }
        QuotaError::PeriodTooShort | QuotaError::PeriodTooLong | QuotaError::PeriodTooFine => {
            ("period", table.period.get().map(|at| &at.span))
        }
        _ => ("", None),
    };
    match place {
        Some(place) => scope.field(field).problem(place.clone(), error.to_string()),
        None => scope.problem(span.clone(), error.to_string()),
    }
    None
}

/// A duration.
pub(super) fn duration(text: &At<String>, scope: &Scope<'_>) -> Option<Duration> {
    match duration::parse(&text.value) {
        Ok(duration) => Some(duration),
        Err(error) => {
            scope.problem_with(text.span.clone(), error.message, error.help);
            None
        }
    }
}
