//! A file as a whole.

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
            /// The location of this file's schema, for editors.
            "$schema" schema: String,
            /// The proxies that rules counting by `client-ip` trust.
            "trusted-proxies" trusted_proxies: ProxiesTable,
            /// What responses contain, and which requests are not limited.
            "layer" layer: LayerTable,
            /// Bounds of what is kept in this process.
            "limiter" limiter: LimiterTable,
        }
    }
}

/// Rules, in order.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(test, derive(serde::Serialize, schemars::JsonSchema))]
pub(crate) struct Rules(pub(crate) Vec<At<RuleTable>>);

impl Rules {
    /// Each rule, with its label.
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
            // An item that is not a rule has been reported, and an empty rule takes its place.
            At { span: node.span.clone(), value: RuleTable::read(node, &scope).unwrap_or_default() }
        };
        // A rule takes far more memory than the text of an item that is none.
        let nodes = nodes.iter().enumerate().take_while(|_| !scope.is_full());
        Some(Self(nodes.map(rule).collect()))
    }
}

/// The label of a rule that has not been read yet.
fn label(number: usize, node: &Node) -> RuleLabel {
    let Value::Table(entries) = &node.value else { return RuleLabel::Number(number) };
    let name = entries.iter().find(|entry| entry.name == "name").map(|entry| &entry.node.value);
    match name {
        Some(Value::Text(name)) if !name.is_empty() => RuleLabel::Name(name.as_str().into()),
        _ => RuleLabel::Number(number),
    }
}

table! {
    /// The trusted proxies, and how they name the client. Either `networks` or `hops`.
    ProxiesTable {
        required {}
        optional {
            /// The networks of the proxies, such as `10.0.0.0/8`, or their addresses.
            "networks" networks: OneOrMany<String>,
            /// The number of proxies, one behind the other, wherever they are. Only for a server that can be
            /// reached only through all of them.
            "hops" hops: u32,
            /// The header field in which proxies name the client: `x-forwarded-for` by default, `forwarded`,
            /// or a proxy's own field with a single address.
            "field" field: String,
        }
    }
}

table! {
    /// What responses contain, and which requests are not limited.
    LayerTable {
        required {}
        optional {
            /// Whether `X-RateLimit-Limit`, `-Remaining` and `-Reset` are written. They are by default.
            "x-ratelimit-headers" x_ratelimit_headers: bool,
            /// The revision of the IETF draft by which `RateLimit` and `RateLimit-Policy` are written. By
            /// default they are not written.
            "ietf-headers" ietf_headers: IetfWord,
            /// Whether CORS preflights are limited. They are not by default.
            "charge-preflights" charge_preflights: bool,
            /// How rejected requests are answered. By default as the application does.
            "rejection" rejection: RejectionWord,
        }
    }
}

words! {
    /// The body of responses to rejected requests. gRPC requests always get a status of their own.
    RejectionWord {
        /// `{"error":"rate_limited",…}`.
        "json" Json,
        /// A problem document, as in RFC 9457.
        "problem" Problem,
    }
}

words! {
    /// A revision of the IETF draft for rate-limit fields.
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
            /// How many keys are counted in this process while the store fails, for rules with `local`.
            "max-local-keys" max_local_keys: u32,
        }
    }
}
