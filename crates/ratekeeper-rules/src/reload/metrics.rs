//! Metrics of reloads, through the `metrics` facade.
//!
//! | name | kind | labels | meaning |
//! |---|---|---|---|
//! | `ratekeeper_reloads_total` | counter | `source`, `outcome` | sets of rules that were `applied` or `refused`, and how often the source was `unread` |
//! | `ratekeeper_reload_failing` | gauge | `source` | 1 while the source has rules that were refused, or cannot be read; otherwise 0 |
//! | `ratekeeper_rules` | gauge | | how many rules are in force |
//! | `ratekeeper_rule_set_info` | gauge | `version` | 1 for the version in force, 0 for previous ones |

use metrics::{counter, gauge};

/// The outcome of an attempt to reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Applied,
    Refused,
    Unread,
}

impl Outcome {
    const ALL: [Self; 3] = [Self::Applied, Self::Refused, Self::Unread];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Refused => "refused",
            Self::Unread => "unread",
        }
    }
}

pub(crate) fn reloaded(source: &'static str, outcome: Outcome) {
    // All outcomes are registered from the start: Prometheus does not see an increase in a counter that
    // begins at 1.
    for each in Outcome::ALL {
        counter!("ratekeeper_reloads_total", "source" => source, "outcome" => each.as_str())
            .increment(u64::from(each == outcome));
    }
}

/// Whether the source has rules that do not come into force.
pub(crate) fn failing(source: &'static str, is_failing: bool) {
    gauge!("ratekeeper_reload_failing", "source" => source).set(f64::from(u8::from(is_failing)));
}

pub(crate) fn in_force(former: &str, version: &str, rules: usize) {
    gauge!("ratekeeper_rules").set(rules as f64);
    if former != version {
        gauge!("ratekeeper_rule_set_info", "version" => former.to_owned()).set(0.0);
    }
    gauge!("ratekeeper_rule_set_info", "version" => version.to_owned()).set(1.0);
}

/// Describes the metrics to the exporter.
pub(crate) fn describe() {
    metrics::describe_counter!(
        "ratekeeper_reloads_total",
        "Sets of rules that were applied or refused, and how often the source was unread"
    );
    metrics::describe_gauge!(
        "ratekeeper_reload_failing",
        "1 while the source has rules that were refused, or cannot be read"
    );
    metrics::describe_gauge!("ratekeeper_rules", "Rules in force");
    metrics::describe_gauge!(
        "ratekeeper_rule_set_info",
        "1 for the version of the rules in force, 0 for those before"
    );
}
