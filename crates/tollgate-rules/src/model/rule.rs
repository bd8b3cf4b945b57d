//! What a file says of a rule.

use super::{FreeTable, KeyPart};
use crate::read::{Named, OneOrMany, Read, expected};
use crate::scope::Scope;
use crate::tree::{Node, Value};

table! {
    /// A rule: what requests it matches, what key it counts by, and how much there is for each.
    RuleTable {
        required {
            /// The name of the rule, which no other has. Counters belong to it.
            "name" name: String,
            /// How much, per how long: `100/minute`, `10/s burst 20`, `5 per 30s sliding-log`; or a table.
            "quota" quota: QuotaSpec,
        }
        optional {
            /// The requests that the rule matches: `POST /login`, `/api/{*rest}`, or a table; or a list, any of which. All
            /// requests unless it is said.
            "match" matches: OneOrMany<MatchSpec>,
            /// The hosts at which the rule matches: `api.example.com`, `*.example.com` for all below it; or a list, any of
            /// which. All hosts unless it is said.
            "host" host: OneOrMany<String>,
            /// The registered predicate that has to be true of a request as well; or a list, all of which.
            "when" when: OneOrMany<String>,
            /// Whether the rule matches no request, and is charged by the application alone.
            "by-hand" by_hand: bool,
            /// Who is counted: a key, or a list, which together are one. The peer's address unless it is said.
            "key" key: OneOrMany<KeyPart>,
            /// What becomes of a request that has not got the key.
            "on-missing-key" on_missing_key: MissingKeyWord,
            /// What callers have who are in a tier, by its name: a quota, `unlimited`, or a table.
            "tiers" tiers: Named<TierSpec>,
            /// The registered lookup that tells which tier a caller is in.
            "tier-by" tier_by: String,
            /// What a request costs, or what was registered to tell it. One unless it is said.
            "cost" cost: CostSpec,
            /// The responses whose requests cost nothing: what was charged is given back.
            "free-when" free_when: FreeTable,
            /// What was registered to tell from the response what a request has really cost.
            "settle-by" settle_by: String,
            /// Whether handlers say what a request has really cost.
            "settle-in-handler" settle_in_handler: bool,
            /// For how long at most requests that are over the quota are held back instead of refused, such as `500ms`.
            "hold-up-to" hold_up_to: String,
            /// What becomes of requests when the store cannot decide.
            "on-store-failure" on_store_failure: FailureSpec,
            /// Whether what the rule says counts.
            "mode" mode: ModeSpec,
            /// Whether header fields tell of the rule while it is in shadow.
            "show-in-shadow" show_in_shadow: bool,
            /// A quota that runs in shadow beside the rule's own.
            "candidate" candidate: QuotaSpec,
        }
    }
}

text_or_table! {
    /// Whether what a rule says counts.
    ModeSpec { text: ModeWord, table: EnforceForTable }
}

words! {
    /// Whether what a rule says counts.
    ModeWord {
        /// It counts. So it is unless it is said.
        "enforce" Enforce,
        /// It is counted and told in metrics and logs, and denies nobody.
        "shadow" Shadow,
    }
}

table! {
    /// What a rule says counts for some, always the same ones.
    EnforceForTable {
        required {
            /// The share of all keys that the rule is enforced for, such as `10%` or `1/4`. The others are in shadow.
            "enforce-for" enforce_for: String,
        }
        optional {}
    }
}

text_or_table! {
    /// How much, per how long, by which algorithm.
    QuotaSpec { text: String, table: QuotaTable }
}

table! {
    /// How much, per how long, by which algorithm.
    QuotaTable {
        required {
            /// How many in a period.
            "limit" limit: u32,
            /// The period, such as `minute` or `30s`.
            "period" period: String,
        }
        optional {
            /// How requests are counted. A token bucket unless it is said.
            "algorithm" algorithm: AlgorithmWord,
            /// How many a token bucket holds. The limit unless it is said.
            "burst" burst: u32,
            /// How many the queue of a leaky bucket holds. The limit unless it is said.
            "capacity" capacity: u32,
        }
    }
}

words! {
    /// How requests are counted.
    AlgorithmWord {
        /// A bucket that refills steadily and holds at most a burst.
        "token-bucket" TokenBucket,
        /// A counter that begins anew with each period.
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
    /// Requests: by method and path.
    MatchSpec { text: String, table: MatchTable }
}

table! {
    /// Requests: by method and path.
    MatchTable {
        required {}
        optional {
            /// The method, or a list, any of which. All methods unless it is said; `GET` is `HEAD` as well.
            "method" method: OneOrMany<String>,
            /// The path, as in axum (`/users/{id}`, `/files/{*rest}`), or a list, any of which. All paths unless it is said.
            "path" path: OneOrMany<String>,
        }
    }
}

words! {
    /// What becomes of a request that has not got the key.
    MissingKeyWord {
        /// All such requests are counted together. So it is unless it is said.
        "shared" Shared,
        /// The rule does not count it.
        "skip" Skip,
        /// It is denied.
        "deny" Deny,
    }
}

text_or_table! {
    /// What callers of a tier have: a quota, or `unlimited`.
    TierSpec { text: String, table: TierTable }
}

table! {
    /// What callers of a tier have.
    TierTable {
        required {
            /// How much, per how long.
            "quota" quota: QuotaSpec,
        }
        optional {
            /// For how long at most requests that are over the quota are held back, instead of what the rule says.
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
    /// What becomes of requests when the store cannot decide.
    FailureSpec { text: FailureWord, table: LocalTable }
}

words! {
    /// What becomes of requests when the store cannot decide.
    FailureWord {
        /// They go on without being counted. So it is unless it is said.
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
