//! Events, through `tracing`. See [`guide::metrics`](crate::guide::metrics) for what they report.
//!
//! None of them contains a key: it may be a secret, and belongs to the caller in any case.

use ratekeeper_core::{Outcome, Retry, RuleName, StoreError, Timestamp};
use tracing::{Level, enabled, info, warn};

use super::sample::Sample;
use super::{Hint, Role, Said};

const TARGET: &str = "ratekeeper";

/// Samples the events of one rule.
#[derive(Debug, Default)]
pub(super) struct OfRule {
    denied: Sample,
    shadow: Sample,
    candidate: Sample,
    /// Separate from `denied`: it uses a different clock, and need not have been denied. For one rule, all
    /// are of the same mode.
    missing_key: Sample,
    failed: Sample,
    overloaded: Sample,
}

impl OfRule {
    pub(super) fn denied(&self, rule: RuleName, role: Role, at: Timestamp, outcome: &Outcome) {
        if enabled!(target: TARGET, Level::INFO) {
            self.tell_denied(rule, role, at, outcome);
        }
    }

    fn tell_denied(&self, rule: RuleName, role: Role, at: Timestamp, outcome: &Outcome) {
        let sample = match role {
            Role::Enforced => &self.denied,
            Role::Shadow => &self.shadow,
            Role::Candidate => &self.candidate,
        };
        let Some(suppressed) = sample.take(at) else { return };
        // `None` if the cost never fits.
        let retry_after_ms =
            outcome.retry().and_then(Retry::after).map(|wait| wait.as_micros().div_ceil(1_000) as u64);
        info!(
            target: TARGET,
            rule = rule.as_str(),
            mode = role.as_str(),
            limit = outcome.limit(),
            remaining = outcome.remaining(),
            retry_after_ms,
            suppressed,
            "denied"
        );
    }

    pub(super) fn missing_key(&self, rule: RuleName, role: Role, at: Timestamp) {
        if !enabled!(target: TARGET, Level::INFO) {
            return;
        }
        if let Some(suppressed) = self.missing_key.take(at) {
            let mode = role.as_str();
            info!(target: TARGET, rule = rule.as_str(), mode, suppressed, "denied, as the key is missing");
        }
    }

    pub(super) fn failed(&self, rule: RuleName, at: Timestamp, error: &StoreError, said: Said) {
        if !enabled!(target: TARGET, Level::WARN) {
            return;
        }
        if let Some(suppressed) = self.failed.take(at) {
            let (error, outcome) = (error as &dyn std::error::Error, said.as_str());
            warn!(target: TARGET, rule = rule.as_str(), outcome, error, suppressed, "the store failed");
        }
    }

    pub(super) fn overloaded(&self, rule: RuleName, at: Timestamp) {
        if !enabled!(target: TARGET, Level::WARN) {
            return;
        }
        if let Some(suppressed) = self.overloaded.take(at) {
            warn!(target: TARGET, rule = rule.as_str(), suppressed, "too many wait already");
        }
    }
}

pub(super) fn hinted(hint: &Hint) {
    let (code, page) = (hint.code().as_str(), hint.code().page());
    warn!(target: TARGET, code, page, "{}", hint.message());
}
