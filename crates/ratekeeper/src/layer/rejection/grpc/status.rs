//! A reason as a `google.rpc.Status`.
//!
//! There are five small messages that never change, so they are written here field by field.

use std::time::Duration;

use ratekeeper_core::{Outcome, RuleName};

use super::super::RejectionReason;
use super::wire::Message;

/// A status of gRPC.
#[derive(Clone, Copy)]
pub(super) enum Code {
    ResourceExhausted = 8,
    Unavailable = 14,
}

impl Code {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::ResourceExhausted => "8",
            Self::Unavailable => "14",
        }
    }
}

/// The maximum size of the violations in bytes. It keeps the header fields of a response well below the 8 KiB
/// that clients have room for, however many rules deny.
const ROOM: usize = 3 * 1024;
/// The longest value of protobuf's `Duration`: ten thousand years.
const LONGEST: Duration = Duration::from_secs(315_576_000_000);

/// The status that a client receives.
pub(super) struct Status<'a> {
    pub(super) code: Code,
    pub(super) message: String,
    reason: &'a RejectionReason<'a>,
}

impl<'a> Status<'a> {
    pub(super) fn of(reason: &'a RejectionReason<'a>) -> Self {
        let (code, what, rule) = match reason {
            RejectionReason::Limited(decision) => {
                (Code::ResourceExhausted, "Too many requests", decision.tightest().map(|(rule, _)| rule))
            }
            RejectionReason::Unavailable { rule, .. } => {
                (Code::Unavailable, "Whether this request may be served cannot be told now", Some(*rule))
            }
            RejectionReason::Overloaded => {
                (Code::Unavailable, "This request would have to wait, and cannot now", None)
            }
        };
        let rule = rule.map(|rule| format!(" (rule {rule})")).unwrap_or_default();
        Self { code, message: format!("{what}{rule}."), reason }
    }

    /// `google.rpc.Status`.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut status = Message::default().number(1, self.code as u64).text(2, &self.message);
        if let Some(wait) = self.reason.wait() {
            status = status.message(3, &any("RetryInfo", &retry_info(wait)));
        }
        if let RejectionReason::Limited(decision) = self.reason {
            let tightest = decision.tightest().filter(|(_, outcome)| !outcome.is_admitted());
            let others = decision.outcomes().filter(|(rule, outcome)| {
                !outcome.is_admitted() && tightest.is_none_or(|(tightest, _)| tightest != *rule)
            });
            let failure = quota_failure(tightest.into_iter().chain(others));
            status = status.message(3, &any("QuotaFailure", &failure));
        }
        status.as_bytes().to_vec()
    }
}

/// `google.protobuf.Any`, containing a message of `google.rpc`.
fn any(name: &str, message: &Message) -> Message {
    Message::default().text(1, &format!("type.googleapis.com/google.rpc.{name}")).message(2, message)
}

/// `google.rpc.RetryInfo`, containing a `google.protobuf.Duration`.
fn retry_info(wait: Duration) -> Message {
    let wait = wait.min(LONGEST);
    let delay = Message::default().number(1, wait.as_secs()).number(2, wait.subsec_nanos().into());
    Message::default().message(1, &delay)
}

/// `google.rpc.QuotaFailure`, with as many rules as there is room for.
fn quota_failure<'a>(denied: impl Iterator<Item = (RuleName, &'a Outcome)>) -> Message {
    let mut failure = Message::default();
    for (rule, outcome) in denied {
        let violation = violation(rule, outcome);
        if failure.len() + violation.len() > ROOM {
            break;
        }
        failure = failure.message(1, &violation);
    }
    failure
}

/// `google.rpc.QuotaFailure.Violation`. It names the rule and not the caller: a key may be somebody's name,
/// or reveal who else is counted by it.
fn violation(rule: RuleName, outcome: &Outcome) -> Message {
    let limit = outcome.limit();
    Message::default()
        .text(1, &format!("rule:{rule}"))
        .text(2, &format!("The limit of {limit} does not allow this request."))
        .text(5, rule.as_str())
        .number(7, limit.into())
}
