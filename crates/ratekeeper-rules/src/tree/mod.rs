//! The contents of a file before they are interpreted: the same tree for every format, with the position of
//! each part.

mod json;
mod toml;
#[cfg(feature = "yaml")]
mod yaml;

use std::ops::Range;

use crate::Format;
use crate::scope::Scope;

/// A position in the text, in bytes.
pub(crate) type Span = Range<usize>;

/// How deeply lists and tables may be nested. Rules need five levels; deeper nesting is suspicious.
const MAX_DEPTH: usize = 32;

/// A value, and its position.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) span: Span,
    pub(crate) value: Value,
}

/// A value of any format.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    /// A number that does not fit becomes the largest or the smallest that does: both are out of range
    /// everywhere.
    Integer(i128),
    Bool(bool),
    List(Vec<Node>),
    Table(Vec<Entry>),
    /// Something that no field accepts, by the name of its kind.
    Other(&'static str),
    /// Something that could not be read, which has been reported.
    Unread,
}

/// A field of a table.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) name_span: Span,
    pub(crate) node: Node,
}

impl Value {
    /// The kind of the value, for messages that expected another.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a text",
            Self::Integer(_) => "a whole number",
            Self::Bool(_) => "true or false",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
            Self::Other(kind) => kind,
            Self::Unread => "something unreadable",
        }
    }
}

/// Parses a text, and reports what is wrong with it to the scope. `None` if so much is wrong that further
/// reports about the rest might be wrong as well.
pub(crate) fn parse(text: &str, format: Format, scope: &Scope<'_>) -> Option<Node> {
    match format {
        Format::Toml => toml::parse(text, scope),
        Format::Json => json::parse(text, scope),
        #[cfg(feature = "yaml")]
        Format::Yaml => yaml::parse(text, scope),
    }
}

/// A whole number from its digits.
fn integer(digits: &str, radix: u32) -> Value {
    let largest = if digits.starts_with('-') { i128::MIN } else { i128::MAX };
    Value::Integer(i128::from_str_radix(digits, radix).unwrap_or(largest))
}
