//! From a tree to the types of the model: which fields there are, and what kind of value each takes.
//!
//! A field that cannot be read is reported and left out, and the fields beside it are read nevertheless, so
//! that all problems are found in one pass.

use crate::scope::Scope;
use crate::tree::{Entry, Node, Span, Value};

/// Something that a file can contain.
pub(crate) trait Read: Sized {
    /// Reads it, or reports why it cannot be read.
    fn read(node: &Node, scope: &Scope<'_>) -> Option<Self>;
}

/// A value, and where it is in the text.
#[derive(Clone, Debug)]
pub(crate) struct At<T> {
    pub(crate) span: Span,
    pub(crate) value: T,
}

impl<T> At<T> {
    /// Another value at the same place.
    pub(crate) fn with<U>(&self, value: U) -> At<U> {
        At { span: self.span.clone(), value }
    }
}

/// Equality ignores where a value is in the text.
impl<T: PartialEq> PartialEq for At<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Read> Read for At<T> {
    fn read(node: &Node, scope: &Scope<'_>) -> Option<Self> {
        Some(Self { span: node.span.clone(), value: T::read(node, scope)? })
    }
}

/// A field of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Field<T> {
    /// It is absent.
    #[default]
    Unsaid,
    /// It is present, but could not be read, which has been reported. Nothing is concluded from its unknown
    /// value.
    Unread,
    Said(At<T>),
}

impl<T> Field<T> {
    pub(crate) fn get(&self) -> Option<&At<T>> {
        match self {
            Self::Said(at) => Some(at),
            Self::Unsaid | Self::Unread => None,
        }
    }

    pub(crate) fn value(&self) -> Option<&T> {
        self.get().map(|at| &at.value)
    }

    /// Whether it is absent, and not merely unreadable.
    pub(crate) fn is_unsaid(&self) -> bool {
        matches!(self, Self::Unsaid)
    }

    /// Whether it is present, but could not be read.
    pub(crate) fn is_unread(&self) -> bool {
        matches!(self, Self::Unread)
    }
}

impl<T: Copy> Field<T> {
    pub(crate) fn copied(&self) -> Option<T> {
        self.value().copied()
    }
}

/// One of something, or a list of them.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(test, derive(serde::Serialize, schemars::JsonSchema), serde(untagged))]
pub(crate) enum OneOrMany<T> {
    One(At<T>),
    Many(Vec<At<T>>),
}

impl<T> OneOrMany<T> {
    pub(crate) fn as_slice(&self) -> &[At<T>] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Many(many) => many,
        }
    }
}

impl<T: Read> Read for OneOrMany<T> {
    fn read(node: &Node, scope: &Scope<'_>) -> Option<Self> {
        match &node.value {
            Value::List(_) => Read::read(node, scope).map(Self::Many),
            _ => Read::read(node, scope).map(Self::One),
        }
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(node: &Node, scope: &Scope<'_>) -> Option<Self> {
        let Value::List(nodes) = &node.value else {
            return expected("a list", node, scope);
        };
        // All of them are read, including those after one that cannot be.
        let read: Self = nodes.iter().filter_map(|node| T::read(node, scope)).collect();
        (read.len() == nodes.len()).then_some(read)
    }
}

impl<T: Read> Read for Box<T> {
    fn read(node: &Node, scope: &Scope<'_>) -> Option<Self> {
        T::read(node, scope).map(Self::new)
    }
}

/// Fields whose names the writer chooses.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Named<T>(pub(crate) Vec<(At<String>, At<T>)>);

impl<T: Read> Read for Named<T> {
    fn read(node: &Node, scope: &Scope<'_>) -> Option<Self> {
        let entries = table(node, scope)?;
        let read = |Entry { name, name_span, node }: &Entry| {
            let name = At { span: name_span.clone(), value: name.clone() };
            let node = Read::read(node, &scope.field(&name.value))?;
            Some((name, node))
        };
        let mut read: Vec<_> = entries.iter().filter_map(read).collect();
        // Their order has no meaning, and some formats do not keep it.
        read.sort_by(|(one, _), (other, _)| one.value.cmp(&other.value));
        (read.len() == entries.len()).then_some(Self(read))
    }
}

impl Read for String {
    fn read(node: &Node, scope: &Scope<'_>) -> Option<Self> {
        match &node.value {
            Value::Text(text) => Some(text.clone()),
            _ => expected("a text", node, scope),
        }
    }
}

impl Read for bool {
    fn read(node: &Node, scope: &Scope<'_>) -> Option<Self> {
        match node.value {
            Value::Bool(bool) => Some(bool),
            _ => expected("true or false", node, scope),
        }
    }
}

impl Read for u32 {
    fn read(node: &Node, scope: &Scope<'_>) -> Option<Self> {
        let Value::Integer(number) = node.value else { return expected("a whole number", node, scope) };
        let read = Self::try_from(number).ok();
        if read.is_none() {
            scope.problem(node.span.clone(), format!("a number is a whole one from 0 to {}", Self::MAX));
        }
        read
    }
}

/// Reports that something else was expected.
pub(crate) fn expected<T>(what: &str, node: &Node, scope: &Scope<'_>) -> Option<T> {
    if !matches!(node.value, Value::Unread) {
        scope.problem(node.span.clone(), format!("expected {what}, found {}", node.value.kind()));
    }
    None
}

/// The fields of a table.
pub(crate) fn table<'t>(node: &'t Node, scope: &Scope<'_>) -> Option<&'t [Entry]> {
    match &node.value {
        Value::Table(entries) => Some(entries),
        _ => expected("a table", node, scope),
    }
}
