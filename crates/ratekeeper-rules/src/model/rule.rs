//! A rule of a file.

use super::{FreeTable, KeyPart};
use crate::read::{Named, OneOrMany, Read, expected};
use crate::scope::Scope;
use crate::tree::{Node, Value};

table! {
    /// A rule: which requests it matches, which key it counts by, and how much each key may use.
    RuleTable {
        required {
            /// The unique name of the rule. Counters belong to it.
            "name" name: String,
            /// The quota: `100/minute`, `10/s burst 20`, `5 per 30s sliding-log`; or a table.
            "quota" quota: QuotaSpec,
        }
        optional {
            /// The requests that the rule matches: `POST /login`, `/api/{*rest}`, or a table; or a list, any
            /// of which. All requests by default.
            "match" matches: OneOrMany<MatchSpec>,
            /// The paths that the rule does not match, whatever the method: `/health`, `/assets/{*rest}`; or a
            /// list, any of which.
            "except" except: OneOrMany<String>,
            /// The hosts at which the rule matches: `api.example.com`, `*.example.com` for all below it; or a
            /// list, any of which. All hosts by default.
            "host" host: OneOrMany<String>,
            /// A registered predicate that must also be true of a request; or a list, all of which.
            "when" when: OneOrMany<String>,
            /// Whether the rule matches no request, and is charged only by the application.
            "by-hand" by_hand: bool,
            /// Who is counted: a key, or a list of keys that form one. The peer's address by default.
            "key" key: OneOrMany<KeyPart>,
            /// What happens to a request without the key.
            "on-missing-key" on_missing_key: MissingKeyWord,
            /// The quotas of tiers, by name: a quota, `unlimited`, or a table.
            "tiers" tiers: Named<TierSpec>,
            /// The registered lookup that finds a caller's tier.
            "tier-by" tier_by: String,
            /// What a request costs: a number, or a registered cost. One by default.
            "cost" cost: CostSpec,
            /// The responses whose requests cost nothing: what was charged is refunded.
            "free-when" free_when: FreeTable,
            /// The registered function that derives the actual cost of a request from its response.
            "settle-by" settle_by: String,
            /// Whether handlers report what a request actually cost.
            "settle-in-handler" settle_in_handler: bool,
            /// How long requests over the quota are held back at most instead of being refused, such as
            /// `500ms`.
            "hold-up-to" hold_up_to: String,
            /// What happens to requests when the store cannot decide.
            "on-store-failure" on_store_failure: FailureSpec,
            /// Whether the rule is enforced.
            "mode" mode: ModeSpec,
            /// Whether header fields report the rule while it is in shadow.
            "show-in-shadow" show_in_shadow: bool,
            /// A quota that runs in shadow beside the rule's own.
            "candidate" candidate: QuotaSpec,
        }
    }
}

text_or_table! {
    /// Whether a rule is enforced.
    ModeSpec { text: ModeWord, table: EnforceForTable }
}

words! {
    /// Whether a rule is enforced.
    ModeWord {
        /// It is enforced. This is the default.
        "enforce" Enforce,
        /// It is counted and reported in metrics and logs, and denies nobody.
        "shadow" Shadow,
    }
}

table! {
    /// Enforces a rule for some keys, always the same ones.
    EnforceForTable {
        required {
            /// The share of all keys for which the rule is enforced, such as `10%` or `1/4`. The others are
            /// in shadow.
            "enforce-for" enforce_for: String,
        }
        optional {}
    }
}

text_or_table! {
    /// A quota: a limit, a period and an algorithm.
    QuotaSpec { text: String, table: QuotaTable }
}

table! {
    /// A quota: a limit, a period and an algorithm.
    QuotaTable {
        required {
            /// How many in a period.
            "limit" limit: u32,
            /// The period, such as `minute` or `30s`.
            "period" period: String,
        }
        optional {
            /// The algorithm. A token bucket by default.
            "algorithm" algorithm: AlgorithmWord,
            /// How many a token bucket holds. The limit by default.
            "burst" burst: u32,
            /// How many the queue of a leaky bucket holds. The limit by default.
            "capacity" capacity: u32,
        }
    }
}

words! {
    /// The algorithm by which requests are counted.
    AlgorithmWord {
        /// A bucket that refills steadily and holds at most a burst.
        "token-bucket" TokenBucket,
        /// A counter that restarts with each period.
        "fixed-window" FixedWindow,
        /// Two counters, the previous one fading out.
        "sliding-window" SlidingWindow,
        /// Exact in every trailing period; memory in proportion to the limit.
        "sliding-log" SlidingLog,
        /// A queue that drains steadily and holds requests back.
        "leaky-bucket" LeakyBucket,
    }
}

text_or_table! {
    /// Requests, by method and path.
    MatchSpec { text: String, table: MatchTable }
}

table! {
    /// Requests, by method and path.
    MatchTable {
        required {}
        optional {
            /// The method, or a list, any of which. All methods by default; `GET` includes `HEAD`.
            "method" method: OneOrMany<String>,
            /// The path, as in axum (`/users/{id}`, `/files/{*rest}`), or a list, any of which. All paths by
            /// default.
            "path" path: OneOrMany<String>,
        }
    }
}

words! {
    /// What happens to a request without the key.
    MissingKeyWord {
        /// All such requests are counted together. This is the default.
        "shared" Shared,
        /// The rule does not count it.
        "skip" Skip,
        /// It is denied.
        "deny" Deny,
    }
}

text_or_table! {
    /// The quota of a tier, or `unlimited`.
    TierSpec { text: String, table: TierTable }
}

table! {
    /// The quota of a tier, with options.
    TierTable {
        required {
            /// The quota.
            "quota" quota: QuotaSpec,
        }
        optional {
            /// How long requests over the quota are held back at most, instead of the rule's own setting.
            "hold-up-to" hold_up_to: String,
            /// A quota that runs in shadow beside the tier's own.
            "candidate" candidate: QuotaSpec,
        }
    }
}

/// What a request costs.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(test, derive(serde::Serialize, schemars::JsonSchema), serde(untagged))]
pub(crate) enum CostSpec {
    Number(u32),
    Registered(RegisteredCost),
}

impl Read for CostSpec {
    fn read(node: &Node, scope: &Scope<'_>) -> Option<Self> {
        match node.value {
            Value::Integer(_) => Read::read(node, scope).map(Self::Number),
            Value::Table(_) => Read::read(node, scope).map(Self::Registered),
            _ => expected("a whole number or a table", node, scope),
        }
    }
}

table! {
    /// A cost that the application registered.
    RegisteredCost {
        required {
            /// The name under which the application registered it.
            "registered" registered: String,
        }
        optional {}
    }
}

text_or_table! {
    /// What happens to requests when the store cannot decide.
    FailureSpec { text: FailureWord, table: LocalTable }
}

words! {
    /// What happens to requests when the store cannot decide.
    FailureWord {
        /// They are admitted without being counted. This is the default.
        "allow" Allow,
        /// They are answered with 503.
        "deny" Deny,
    }
}

table! {
    /// Requests are counted in this process when the store cannot decide.
    LocalTable {
        required {
            /// The share of the quota that this process admits, such as `1/4` for one of four.
            "local" local: String,
        }
        optional {}
    }
}
