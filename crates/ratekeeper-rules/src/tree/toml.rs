//! TOML.

use std::borrow::Cow;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Entry, Node, Span, Value, integer};
use crate::scope::Scope;

/// The parser's message for a duplicate field. The rest of the file is still as it was meant.
const TWICE: &str = "duplicate key";

/// The largest text in which the parser continues after an error. It keeps every error, which can be one for
/// each byte and takes 200 times its space.
const MAX_RECOVERED: usize = 256 << 10;

/// Reads TOML. The parser continues after an error, so that the next one is found as well; but its result
/// after an error is a guess, and is not used.
pub(super) fn parse(text: &str, scope: &Scope<'_>) -> Option<Node> {
    let (root, errors) = if text.len() <= MAX_RECOVERED {
        let (root, errors) = DeTable::parse_recoverable(text);
        (Some(root), errors)
    } else {
        match DeTable::parse(text) {
            Ok(root) => (Some(root), Vec::new()),
            Err(error) => (None, vec![error]),
        }
    };
    for error in &errors {
        scope.problem(error.span().unwrap_or(0..0), format!("this is not TOML: {}", error.message()));
    }
    let is_sound = errors.iter().all(|error| error.message() == TWICE);
    root.filter(|_| is_sound).map(|root| Node { span: 0..0, value: table(root.get_ref()) })
}

// The parser refuses what is nested too deeply, so this recursion is bounded.
fn node(value: &Spanned<DeValue<'_>>) -> Node {
    let span: Span = value.span();
    let value = match value.get_ref() {
        DeValue::String(text) => Value::Text(text.clone().into_owned()),
        DeValue::Integer(number) => integer(number.as_str(), number.radix()),
        DeValue::Float(_) => Value::Other("a number with a fraction"),
        DeValue::Boolean(bool) => Value::Bool(*bool),
        DeValue::Datetime(_) => Value::Other("a date"),
        DeValue::Array(nodes) => Value::List(nodes.iter().map(node).collect()),
        DeValue::Table(entries) => table(entries),
    };
    Node { span, value }
}

fn table(entries: &DeTable<'_>) -> Value {
    let entry = |(name, value): (&Spanned<Cow<'_, str>>, _)| Entry {
        name: name.get_ref().clone().into_owned(),
        name_span: name.span(),
        node: node(value),
    };
    let mut entries: Vec<Entry> = entries.iter().map(entry).collect();
    // In the order of the text, not of their names.
    entries.sort_by_key(|entry| entry.name_span.start);
    Value::Table(entries)
}
