//! What a file says as a whole.

use super::RuleTable;
use crate::read::{At, OneOrMany, Read, expected};
use crate::scope::{RuleLabel, Scope};
use crate::tree::{Node, Value};

table! {
    /// Rate-limit rules.
    File {
        required {
            /// The rules. All that match a request decide about it together.
            "rules" rules: Rules,
        }
        optional {
            /// Where the schema of this file is, for editors.
            "$schema" schema: String,
            /// The proxies that are trusted by rules that count by `client-ip`.
            "trusted-proxies" trusted_proxies: ProxiesTable,
            /// What responses say, and which requests are not limited.
            "layer" layer: LayerTable,
            /// Bounds of what is kept in this process.
            "limiter" limiter: LimiterTable,
        }
    }
}

/// Rules, in their order.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(test, derive(serde::Serialize, schemars::JsonSchema))]
pub(crate) struct Rules(pub(crate) Vec<At<RuleTable>>);

impl Rules {
    /// Each rule, with what it is called.
    pub(crate) fn labelled(&self) -> impl Iterator<Item = (RuleLabel, &At<RuleTable>)> {
        let label = |number, rule: &At<RuleTable>| match rule.value.name.value() {
            Some(name) if !name.is_empty() => RuleLabel::Name(name.as_str().into()),
            _ => RuleLabel::Number(number),
        };
        self.0.iter().enumerate().map(move |(index, rule)| (label(index + 1, rule), rule))
    }
}

impl Read for Rules {
    fn read(node: &Node, scope: &Scope<'_>) -> Option<Self> {
        let Value::List(nodes) = &node.value else { return expected("a list of rules", node, scope) };
        let rule = |(index, node): (usize, &Node)| {
            let scope = scope.rule(label(index + 1, node));
            // What is no rule has been reported, and is in nobody's way.
            At { span: node.span.clone(), value: RuleTable::read(node, &scope).unwrap_or_default() }
        };
        Some(Self(nodes.iter().enumerate().map(rule).collect()))
    }
}

/// What a rule is called that has not been read yet.
fn label(number: usize, node: &Node) -> RuleLabel {
    let Value::Table(entries) = &node.value else { return RuleLabel::Number(number) };
    let name = entries.iter().find(|entry| entry.name == "name").map(|entry| &entry.node.value);
    match name {
        Some(Value::Text(name)) if !name.is_empty() => RuleLabel::Name(name.as_str().into()),
        _ => RuleLabel::Number(number),
    }
}

table! {
    /// Which proxies are believed, and what they say. Either `networks` or `hops`.
    ProxiesTable {
        required {}
        optional {
            /// The networks that proxies are in, such as `10.0.0.0/8`, or their addresses.
            "networks" networks: OneOrMany<String>,
            /// How many proxies there are, one behind the other, wherever they are. Only where the server cannot be
            /// reached but through all of them.
            "hops" hops: u32,
            /// The header field in which proxies say who the client is: `x-forwarded-for` unless it is said, `forwarded`, or
            /// a field of a proxy's own that has one address.
            "field" field: String,
        }
    }
}

table! {
    /// What responses say, and which requests are not limited.
    LayerTable {
        required {}
        optional {
            /// Whether `X-RateLimit-Limit`, `-Remaining` and `-Reset` are written. They are unless it is said.
            "x-ratelimit-headers" x_ratelimit_headers: bool,
            /// The revision of the IETF's draft by which `RateLimit` and `RateLimit-Policy` are written. They are not
            /// unless it is said.
            "ietf-headers" ietf_headers: IetfWord,
            /// Whether CORS preflights are limited. They are not unless it is said.
            "charge-preflights" charge_preflights: bool,
            /// What requests are answered that do not go on. What the application has unless it is said.
            "rejection" rejection: RejectionWord,
        }
    }
}

words! {
    /// A body for requests that do not go on. Those of gRPC have a status of their own in any case.
    RejectionWord {
        /// `{"error":"rate_limited",…}`.
        "json" Json,
        /// A problem document, as in RFC 9457.
        "problem" Problem,
    }
}

words! {
    /// A revision of the IETF's draft for rate-limit fields.
    IetfWord {
        /// draft-ietf-httpapi-ratelimit-headers-11.
        "draft-11" Draft11,
    }
}

table! {
    /// Bounds of what is kept in this process.
    LimiterTable {
        required {}
        optional {
            /// How many requests can be held back at the same time.
            "max-waiting" max_waiting: u32,
            /// How many keys are counted in this process while the store fails, for rules that want it.
            "max-local-keys" max_local_keys: u32,
        }
    }
}
