//! Events that are sent to clients.

use std::time::Duration;

use axum::extract::ws::Message;
use ratekeeper::{Decision, LimiterError, Retry};
use serde::Serialize;

/// An event that is sent to a client, as JSON: `{"event":"said","user":"alice","text":"hello"}`.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(crate) enum Event {
    /// To a user who has just joined.
    Welcome { budgets: Vec<Budget> },
    /// To everybody: somebody said this.
    Said { user: String, text: String },
    /// To the speaker: it was said.
    Sent { budgets: Vec<Budget> },
    /// To the speaker: it was not said, and cannot be for this many milliseconds.
    Wait { rule: String, millis: u64, budgets: Vec<Budget> },
    /// To the speaker: it is unknown whether it may be said.
    Failed,
}

/// What is left of one rule's budget.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Budget {
    rule: String,
    limit: u32,
    remaining: u32,
    /// Milliseconds until there is more.
    more_millis: u64,
    /// Milliseconds until it is full.
    whole_millis: u64,
}

impl Event {
    pub(crate) fn welcome(decision: &Decision) -> Self {
        Self::Welcome { budgets: budgets(decision) }
    }

    pub(crate) fn said(user: &str, text: &str) -> Self {
        Self::Said { user: user.to_owned(), text: text.to_owned() }
    }

    pub(crate) fn sent(decision: &Decision) -> Self {
        Self::Sent { budgets: budgets(decision) }
    }

    pub(crate) fn wait(decision: &Decision) -> Self {
        // A message costs one, which fits at some time: there is no quota that holds nothing.
        let wait = decision.retry().and_then(Retry::after).unwrap_or_default();
        let rule = decision.tightest().map_or_else(String::new, |(rule, _)| rule.to_string());
        Self::Wait { rule, millis: millis(wait), budgets: budgets(decision) }
    }

    pub(crate) fn failed(error: &LimiterError) -> Self {
        // Internal errors are not for clients.
        eprintln!("cannot tell who may speak: {error}");
        Self::Failed
    }

    pub(crate) fn to_message(&self) -> Message {
        // Texts and numbers always serialize to JSON.
        Message::text(serde_json::to_string(self).unwrap_or_default())
    }
}

fn budgets(decision: &Decision) -> Vec<Budget> {
    let budgets = decision.outcomes().map(|(rule, outcome)| Budget {
        rule: rule.to_string(),
        limit: outcome.limit(),
        remaining: outcome.remaining(),
        more_millis: millis(outcome.refill_after()),
        whole_millis: millis(outcome.reset_after()),
    });
    budgets.collect()
}

/// Rounded up, so that waiting this long is long enough.
fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)
}
