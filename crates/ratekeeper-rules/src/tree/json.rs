//! JSON.
//!
//! serde_json reports where an error is, but not where a value is. It can return values as slices of the
//! text, though. So each level is read as a list or map of slices, which are then read in turn.

use std::collections::HashMap;
use std::fmt;

#[cfg(feature = "yaml")]
use serde::de::IgnoredAny;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{Entry, MAX_DEPTH, Node, Span, Value, integer};
use crate::scope::Scope;

/// Whether this is JSON as a whole.
#[cfg(feature = "yaml")]
pub(super) fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(without_mark(text)).is_ok()
}

/// RFC 8259, section 8.1: a parser may ignore a byte order mark. Some editors write one.
fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Reads JSON. `None` if it is not JSON at all.
pub(super) fn parse(text: &str, scope: &Scope<'_>) -> Option<Node> {
    let json = without_mark(text);
    match serde_json::from_str::<&RawValue>(json) {
        Ok(root) => Some(Reader { text, scope }.node(root, 0)),
        Err(error) => {
            let at = text.len() - json.len() + offset(json, error.line(), error.column());
            scope.problem(at..at, message(&error));
            None
        }
    }
}

/// The offset of a line and column, which serde_json counts from one, in bytes.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let before: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    (before + column.saturating_sub(1)).min(text.len())
}

/// What is wrong, without the position, which is reported as for all problems.
fn message(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let message = message.rsplit_once(" at line ").map_or(&*message, |(message, _)| message);
    format!("this is not JSON: {message}")
}

struct Reader<'a> {
    text: &'a str,
    scope: &'a Scope<'a>,
}

impl Reader<'_> {
    fn node(&self, raw: &RawValue, depth: usize) -> Node {
        let json = raw.get();
        let span = self.span(json);
        let value = match json.as_bytes().first() {
            Some(b'{' | b'[') if depth == MAX_DEPTH => {
                self.scope.problem(span.start..span.start + 1, "this is nested too deeply");
                Value::Unread
            }
            Some(b'{') => self.read(json, |Fields(fields)| self.table(&fields, depth)),
            Some(b'[') => self.read(json, |items: Vec<&RawValue>| {
                Value::List(items.into_iter().map(|item| self.node(item, depth + 1)).collect())
            }),
            Some(b'"') => self.read(json, Value::Text),
            Some(b't') => Value::Bool(true),
            Some(b'f') => Value::Bool(false),
            Some(b'n') => Value::Other("null"),
            _ if json.contains(['.', 'e', 'E']) => Value::Other("a number with a fraction"),
            _ => integer(json, 10),
        };
        Node { span, value }
    }

    fn table(&self, fields: &[(&RawValue, &RawValue)], depth: usize) -> Value {
        let mut seen = HashMap::new();
        let mut entries = Vec::with_capacity(fields.len());
        for (name, value) in fields {
            let name_span = self.span(name.get());
            let Value::Text(name) = self.read(name.get(), Value::Text) else { continue };
            if let Some(first) = seen.insert(name.clone(), name_span.clone()) {
                self.scope.problem_twice(name_span, format!("`{name}` is said twice"), first);
                continue;
            }
            entries.push(Entry { name, name_span, node: self.node(value, depth + 1) });
        }
        Value::Table(entries)
    }

    /// Reads one level. The text has been read as a whole before, but that does not find every error, such as
    /// half of a surrogate pair.
    fn read<'a, T: Deserialize<'a>>(&self, json: &'a str, value: impl FnOnce(T) -> Value) -> Value {
        match serde_json::from_str(json) {
            Ok(read) => value(read),
            Err(error) => {
                self.scope.problem(self.span(json), message(&error));
                Value::Unread
            }
        }
    }

    /// Where a slice is in the text.
    fn span(&self, slice: &str) -> Span {
        let start = (slice.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        start..start + slice.len()
    }
}

/// The fields of a table, in order, including duplicates.
struct Fields<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;

        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Vec<(&'de RawValue, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(fields)
            }
        }

        deserializer.deserialize_map(FieldsVisitor).map(Self)
    }
}
