//! What a file says before anybody knows what it means: the same tree for every format, and where each part stands.

mod json;
mod toml;
#[cfg(feature = "yaml")]
mod yaml;

use std::ops::Range;

use crate::Format;
use crate::scope::Scope;

/// Where something stands in the text, in bytes.
pub(crate) type Span = Range<usize>;

/// How deep lists and tables may be within each other. Rules need five; whoever nests deeper is up to something.
const MAX_DEPTH: usize = 32;

/// A value, and where it stands.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) span: Span,
    pub(crate) value: Value,
}

/// A value of any format.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    /// A number that does not fit is the largest, or the least, that does: both are too much for all that is counted.
    Integer(i128),
    Bool(bool),
    List(Vec<Node>),
    Table(Vec<Entry>),
    /// Something that no field takes, by the name of its kind.
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
    /// What kind of value it is, for who expected another.
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

/// Reads a text. What is wrong with it goes to the scope. `None` if so much is wrong that whatever else could be said of
/// the rest might be wrong as well.
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
