//! YAML 1.2, as far as it expresses what JSON can: without aliases, tags and multiple documents.

use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, StrInput};

use super::{Entry, MAX_DEPTH, Node, Span, Value, integer, json};
use crate::scope::Scope;

/// Reads YAML. `None` if it is invalid, or more than is accepted here.
pub(super) fn parse(text: &str, scope: &Scope<'_>) -> Option<Node> {
    // JSON is YAML, but the parser refuses some of its white space: a tab between `:` and `true`.
    if json::is_json(text) {
        return json::parse(text, scope);
    }
    let mut reader = Reader { events: Parser::new_from_str(text), places: Places::new(text), scope };
    let mut root = None;
    loop {
        let (event, span) = reader.next()?;
        match event {
            Event::StreamEnd => break,
            Event::DocumentStart(_) if root.is_some() => {
                scope.problem(span, "rules are one document, and here begins another");
                return None;
            }
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            event => root = Some(reader.node(event, span, 0)?),
        }
    }
    Some(root.unwrap_or(Node { span: 0..0, value: Value::Table(Vec::new()) }))
}

struct Reader<'a> {
    events: Parser<'a, StrInput<'a>>,
    places: Places,
    scope: &'a Scope<'a>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<(Event<'a>, Span)> {
        match self.events.next()? {
            Ok((event, span)) => Some((event, self.places.byte(&span.start)..self.places.byte(&span.end))),
            Err(error) => {
                let at = self.places.byte(error.marker());
                self.scope.problem(at..at, format!("this is not YAML: {}", error.info()));
                None
            }
        }
    }

    /// The value that begins with this event. `None` if what follows cannot be read.
    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Option<Node> {
        let is_tagged = matches!(
            event,
            Event::Scalar(_, _, _, Some(_))
                | Event::SequenceStart(_, Some(_))
                | Event::MappingStart(_, Some(_))
        );
        if is_tagged {
            self.scope.problem(span.clone(), "tags say nothing here");
        }
        if depth > MAX_DEPTH {
            self.scope.problem(span, "this is nested too deeply");
            return None;
        }
        let (value, end) = match event {
            Event::Scalar(text, ScalarStyle::Plain, ..) => (plain(&text), span.end),
            Event::Scalar(text, ..) => (Value::Text(text.into_owned()), span.end),
            Event::SequenceStart(..) => self.list(depth)?,
            Event::MappingStart(..) => self.table(depth)?,
            _ => {
                self.scope.problem(span.clone(), "aliases are not read; write out what is meant");
                (Value::Unread, span.end)
            }
        };
        Some(Node { span: span.start..end, value })
    }

    /// The rest of a list, and where it ends.
    fn list(&mut self, depth: usize) -> Option<(Value, usize)> {
        let mut nodes = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, span) => return Some((Value::List(nodes), span.end)),
                (event, span) => nodes.push(self.node(event, span, depth + 1)?),
            }
        }
    }

    /// The rest of a table, and where it ends.
    fn table(&mut self, depth: usize) -> Option<(Value, usize)> {
        let mut seen = HashMap::new();
        let mut entries = Vec::new();
        loop {
            let (name, name_span) = match self.next()? {
                (Event::MappingEnd, span) => return Some((Value::Table(entries), span.end)),
                (Event::Scalar(name, ..), span) => (name.into_owned(), span),
                (_, span) => {
                    self.scope.problem(span, "the name of a field is a text");
                    return None;
                }
            };
            let (event, span) = self.next()?;
            let node = self.node(event, span, depth + 1)?;
            if let Some(first) = seen.insert(name.clone(), name_span.clone()) {
                self.scope.problem_twice(name_span, format!("`{name}` is said twice"), first);
            } else {
                entries.push(Entry { name, name_span, node });
            }
        }
    }
}

/// The value of an unquoted text, by the core schema of YAML 1.2: `no` is text.
fn plain(text: &str) -> Value {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Other("null"),
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        ".inf" | "-.inf" | "+.inf" | ".nan" => Value::Other("a number with a fraction"),
        _ if is_all(unsigned, 10) => integer(text, 10),
        _ => match text.split_at_checked(2) {
            Some(("0x", digits)) if is_all(digits, 16) => integer(digits, 16),
            Some(("0o", digits)) if is_all(digits, 8) => integer(digits, 8),
            _ if text.contains(|c: char| c.is_ascii_digit()) && text.parse::<f64>().is_ok() => {
                Value::Other("a number with a fraction")
            }
            _ => Value::Text(text.to_owned()),
        },
    }
}

fn is_all(digits: &str, radix: u32) -> bool {
    !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix))
}

/// The byte offsets of characters, which the parser reports by number.
struct Places {
    /// The byte at which each character begins; `None` if that is the character's number.
    bytes: Option<Vec<usize>>,
    end: usize,
}

impl Places {
    fn new(text: &str) -> Self {
        let bytes = (!text.is_ascii()).then(|| text.char_indices().map(|(at, _)| at).collect());
        Self { bytes, end: text.len() }
    }

    fn byte(&self, marker: &Marker) -> usize {
        match &self.bytes {
            None => marker.index().min(self.end),
            Some(bytes) => bytes.get(marker.index()).copied().unwrap_or(self.end),
        }
    }
}
