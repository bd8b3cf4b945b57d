//! Output for programs.

use ratekeeper::{MissingKey, RequestHead, explain::Why};
use serde_json::{Value, json};

use super::Report;

pub(super) fn show(report: &Report) -> Value {
    let head = RequestHead::from(&report.request);
    let rules: Vec<Value> = report.explained.iter().map(|one| rule(one.rule.as_str(), &one.why)).collect();
    let headers: Vec<Value> = report
        .response
        .headers()
        .iter()
        .map(|(name, value)| json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())]))
        .collect();
    let unknown: Vec<Value> =
        report.unknown.iter().map(|(rule, field)| json!({ "rule": rule, "field": field })).collect();
    json!({
        "request": {
            "method": head.method().as_str(),
            "path": head.path(),
            "host": head.host(),
            "peer": report.peer,
            "exempt": report.is_exempt,
        },
        "rules": rules,
        "response": {
            "status": report.response.status().as_u16(),
            "headers": headers,
            "body": String::from_utf8_lossy(report.response.body()),
        },
        "unknown": unknown,
    })
}

fn rule(name: &str, why: &Why) -> Value {
    match why {
        Why::Counts(counted) => json!({
            "rule": name,
            "counts": true,
            "key": counted.key.to_string(),
            "shared": counted.is_shared,
            "tier": counted.tier,
            "quota": counted.quota.to_string(),
            "cost": counted.cost,
            "enforced": counted.is_enforced,
            "candidate": counted.candidate.map(|quota| quota.to_string()),
        }),
        Why::Unlimited { tier } => json!({ "rule": name, "counts": false, "unlimited": true, "tier": tier }),
        Why::NoKey(missing) => {
            json!({ "rule": name, "counts": false, "no_key": true, "denied": *missing == MissingKey::Deny })
        }
        Why::Unmatched(mismatches) => {
            let why: Vec<String> = mismatches.iter().map(ToString::to_string).collect();
            json!({ "rule": name, "counts": false, "why": why })
        }
        // There may be more variants some day.
        other => json!({ "rule": name, "counts": false, "why": [format!("{other:?}")] }),
    }
}
