//! The contents of a file as written: words, texts and numbers that have not been interpreted yet.
//!
//! The comments on these types become descriptions in the generated schema, which editors show.

#[macro_use]
mod macros;
pub(crate) mod key;
pub(crate) mod rule;
pub(crate) mod set;
pub(crate) mod settle;

pub(crate) use self::key::{ClientIpTable, KeyPart, KeyWord};
pub(crate) use self::rule::{
    AlgorithmWord, CostSpec, FailureSpec, FailureWord, MatchSpec, MatchTable, MissingKeyWord, ModeSpec,
    ModeWord, QuotaSpec, QuotaTable, RuleTable, TierSpec,
};
pub(crate) use self::set::{File, IetfWord, LayerTable, LimiterTable, ProxiesTable, RejectionWord, Rules};
pub(crate) use self::settle::{FreeTable, StatusSpec};
use crate::read::{At, Field, Read, expected, table};
use crate::scope::Scope;
use crate::suggest::{did_you_mean, list};
use crate::tree::{Entry, Node, Span, Value};

/// The fields of a table while it is read. Which fields it can have is known once all of them have been asked
/// for.
pub(crate) struct Fields<'t, 's> {
    entries: &'t [Entry],
    span: Span,
    known: Vec<&'static str>,
    missing: Vec<&'static str>,
    scope: &'s Scope<'s>,
}

impl<'t, 's> Fields<'t, 's> {
    pub(crate) fn new(node: &'t Node, scope: &'s Scope<'s>) -> Option<Self> {
        let entries = table(node, scope)?;
        Some(Self { entries, span: node.span.clone(), known: Vec::new(), missing: Vec::new(), scope })
    }

    /// An optional field.
    pub(crate) fn optional<T: Read>(&mut self, name: &'static str) -> Field<T> {
        self.known.push(name);
        match self.entries.iter().find(|entry| entry.name == name) {
            None => Field::Unsaid,
            Some(entry) => At::read(&entry.node, &self.scope.field(name)).map_or(Field::Unread, Field::Said),
        }
    }

    /// A required field.
    pub(crate) fn required<T: Read>(&mut self, name: &'static str) -> Field<T> {
        let field = self.optional(name);
        if field.is_unsaid() {
            self.missing.push(name);
        }
        field
    }

    /// Reports unknown and missing fields.
    pub(crate) fn finish(self) {
        // A field that is already there is not what a misspelled one was meant to be.
        let is_there = |name: &str| self.entries.iter().any(|entry| entry.name == name);
        let free: Vec<&str> = self.known.iter().copied().filter(|known| !is_there(known)).collect();
        let mut meant = Vec::new();
        for entry in self.entries.iter().filter(|entry| !self.known.contains(&&*entry.name)) {
            let near = did_you_mean(&entry.name, free.iter().copied());
            meant.extend(crate::suggest::nearest(&entry.name, self.missing.iter().copied()));
            let help =
                near.unwrap_or_else(|| format!("the fields here are {}", list(self.known.iter().copied())));
            self.scope.problem_with(
                entry.name_span.clone(),
                format!("there is no field `{}`", entry.name),
                help,
            );
        }
        // A missing field that is there under a misspelled name has been reported.
        for name in self.missing.iter().filter(|name| !meant.contains(name)) {
            self.scope.problem(first_byte(&self.span), format!("`{name}` is missing"));
        }
    }
}

/// Where a table begins. Its span would cover a whole rule.
fn first_byte(span: &Span) -> Span {
    span.start..span.end.min(span.start + 1)
}

/// One of these words.
fn word<T: Copy>(words: &[(&'static str, T)], node: &Node, scope: &Scope<'_>) -> Option<T> {
    let Value::Text(text) = &node.value else { return expected("a text", node, scope) };
    let found = words.iter().find(|(word, _)| word == text);
    if found.is_none() {
        let known = || words.iter().map(|(word, _)| *word);
        let message = match words {
            [(only, _)] => format!("`{text}` is not `{only}`, which is all there is"),
            _ => format!("`{text}` is none of {}", list(known())),
        };
        scope.problem_with(node.span.clone(), message, did_you_mean(text, known()));
    }
    found.map(|(_, word)| *word)
}
