//! The part of a file about what a request actually cost.

use crate::read::{OneOrMany, Read, expected};
use crate::scope::Scope;
use crate::tree::{Node, Value};

table! {
    /// Responses whose requests cost nothing. Either `status` or `status-not`.
    FreeTable {
        required {}
        optional {
            /// Those with this status, such as `304` or `"5xx"`; or a list, any of which.
            "status" status: OneOrMany<StatusSpec>,
            /// Those with any other status; or a list, none of which.
            "status-not" status_not: OneOrMany<StatusSpec>,
        }
    }
}

/// A status such as `304`, or a whole class, such as `"5xx"`.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(test, derive(serde::Serialize, schemars::JsonSchema), serde(untagged))]
pub(crate) enum StatusSpec {
    Number(u32),
    Text(String),
}

impl Read for StatusSpec {
    fn read(node: &Node, scope: &Scope<'_>) -> Option<Self> {
        match node.value {
            Value::Integer(_) => Read::read(node, scope).map(Self::Number),
            Value::Text(_) => Read::read(node, scope).map(Self::Text),
            _ => expected("a status, such as 304 or \"5xx\"", node, scope),
        }
    }
}
