//! What a client is told.

use std::time::Duration;

use axum::extract::ws::Message;
use serde::Serialize;
use tollgate::{Decision, LimiterError, Retry};

/// What a client is told, as JSON: `{"event":"said","user":"alice","text":"hello"}`.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(crate) enum Event {
    /// To who has just joined.
    Welcome { budgets: Vec<Budget> },
    /// To all: somebody said this.
    Said { user: String, text: String },
    /// To who spoke: it was said.
    Sent { budgets: Vec<Budget> },
    /// To who spoke: it was not said, and will not be for so many milliseconds.
    Wait { rule: String, millis: u64, budgets: Vec<Budget> },
    /// To who spoke: nobody knows whether it may be said.
    Failed,
}

/// What is left of one rule's budget.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Budget {
    rule: String,
    limit: u32,
    remaining: u32,
    /// In how many milliseconds there is more.
    more_millis: u64,
    /// In how many milliseconds all of it is there.
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
        // What is wrong inside is not for clients.
        eprintln!("cannot tell who may speak: {error}");
        Self::Failed
    }

    pub(crate) fn to_message(&self) -> Message {
        // Texts and numbers are always JSON.
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

/// Rounded up, so that who waits this long has waited long enough.
fn millis(wait: Duration) -> u64 {
    u64::try_from(wait.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)
}
