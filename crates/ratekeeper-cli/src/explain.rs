//! `ratekeeper explain`: what the rules of a file do with a request.

mod json;
mod text;

use std::convert::Infallible;
use std::path::Path;

use bytes::Bytes;
use http::{Request, Response};
use ratekeeper::{
    ConfigError, ManualClock, MemoryStore, RateLimitLayer, RequestHead, explain::Explanation,
    explain::Mismatch, explain::Why,
};
use ratekeeper_rules::{Registry, RuleFile};
use tower::{Layer, ServiceExt, service_fn};

use crate::args::Format;
use crate::check;
use crate::outcome::Outcome;
use crate::request::Asked;

/// What became of a request.
struct Report {
    request: Request<()>,
    peer: String,
    explained: Vec<Explanation>,
    /// Whether the layer applies no rules, because it is a CORS preflight.
    is_exempt: bool,
    response: Response<Bytes>,
    /// What the file leaves to the application: rule and field.
    unknown: Vec<(String, String)>,
}

pub(crate) fn run(path: &Path, asked: Asked, format: Format) -> Outcome {
    let wrong = |text: String| Outcome { err: format!("{text}\n"), is_wrong: true, ..Outcome::default() };
    let registry = match &asked.tier {
        Some(tier) => Registry::any().any_tier(tier.clone()),
        None => Registry::any(),
    };
    let file = match check::load(path, &registry) {
        Ok(file) => file,
        Err(error) => return wrong(error.text()),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_time().build() {
        Ok(runtime) => runtime,
        Err(error) => return wrong(format!("error: {error}")),
    };
    let mut report = match runtime.block_on(explain(&file, asked)) {
        Ok(report) => report,
        Err(error) => return wrong(format!("error: {}: {error}", path.display())),
    };
    report.unknown = unknown(path);
    report
        .unknown
        .retain(|(rule, _)| report.explained.iter().any(|one| one.rule.as_str() == rule && is_asked(one)));
    let out = match format {
        Format::Text => text::show(&report),
        Format::Json => format!("{:#}\n", json::show(&report)),
    };
    Outcome { out, ..Outcome::default() }
}

/// Explains the request, and then actually decides on it, with a store that has seen no other.
async fn explain(file: &RuleFile, asked: Asked) -> Result<Report, ConfigError> {
    let store = MemoryStore::builder().clock(ManualClock::new(asked.at())).build();
    let limiter = file.limiter().store(store).build()?;
    let (peer, request) = (asked.peer().ip().to_string(), asked.into_request());
    let head = RequestHead::from(&request);
    let is_exempt = head.is_preflight() && file.layer().charge_preflights() != Some(true);
    let explained = limiter.rule_set().explain(&head).await;
    let ok = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(Bytes::new())));
    let limited = file.layer().apply(RateLimitLayer::new(limiter)).layer(ok);
    let Ok(response) = limited.oneshot(request.clone()).await;
    Ok(Report { request, peer, explained, is_exempt, response, unknown: Vec::new() })
}

/// Whether the rule matches, so that it matters what only the application knows.
fn is_asked(explained: &Explanation) -> bool {
    match &explained.why {
        Why::Unmatched(mismatches) => mismatches.contains(&Mismatch::Predicate),
        _ => true,
    }
}

/// The names that an empty registry does not have.
fn unknown(path: &Path) -> Vec<(String, String)> {
    let Err(error) = RuleFile::load(path, &Registry::new()) else { return Vec::new() };
    let place = |problem: &ratekeeper_rules::Problem| {
        (problem.rule().unwrap_or_default().to_owned(), problem.field().unwrap_or_default().to_owned())
    };
    error.problems().iter().map(place).collect()
}
