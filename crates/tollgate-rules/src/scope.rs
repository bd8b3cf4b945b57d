//! Where in a file somebody is reading, and what was found to be wrong.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::tree::Span;

/// How much is kept of what is wrong. A file of which all is wrong must not take more memory than it has itself.
const MAX_KEPT: usize = 1_000;

/// All that was found to be wrong.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    kept: RefCell<Vec<Finding>>,
    count: Cell<usize>,
}

/// Something that is wrong, as it is found.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) span: Span,
    pub(crate) rule: Option<RuleLabel>,
    /// The fields that lead to it, with dots between them; empty if it is none's.
    pub(crate) field: String,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
    /// Where the same was said first, if it must not be said again.
    pub(crate) first: Option<Span>,
}

/// What a rule is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RuleLabel {
    Name(Rc<str>),
    /// Its number, from one, as it has no name that could be read.
    Number(usize),
}

impl Findings {
    pub(crate) fn is_empty(&self) -> bool {
        self.count.get() == 0
    }

    /// How many there are, of which not all may have been kept.
    pub(crate) fn count(&self) -> usize {
        self.count.get()
    }

    /// As they stand in the text.
    pub(crate) fn into_sorted(self) -> Vec<Finding> {
        let mut findings = self.kept.into_inner();
        findings.sort_by_key(|finding| finding.span.start);
        findings
    }
}

/// A rule and a field of it, or a part of the file that is no rule's.
#[derive(Clone, Debug)]
pub(crate) struct Scope<'a> {
    findings: &'a Findings,
    rule: Option<RuleLabel>,
    field: String,
}

impl<'a> Scope<'a> {
    /// The whole file.
    pub(crate) fn file(findings: &'a Findings) -> Self {
        Self { findings, rule: None, field: String::new() }
    }

    /// A rule.
    pub(crate) fn rule(&self, rule: RuleLabel) -> Self {
        Self { findings: self.findings, rule: Some(rule), field: String::new() }
    }

    /// A field of what this is the scope of.
    pub(crate) fn field(&self, name: &str) -> Self {
        let dot = if self.field.is_empty() { "" } else { "." };
        Self { findings: self.findings, rule: self.rule.clone(), field: format!("{}{dot}{name}", self.field) }
    }

    /// How much was found to be wrong until now, anywhere.
    pub(crate) fn found(&self) -> usize {
        self.findings.count()
    }

    /// Something is wrong here.
    pub(crate) fn problem(&self, span: Span, message: impl Into<String>) {
        self.report(span, message.into(), None, None);
    }

    /// Something is wrong here, and this may be what was meant.
    pub(crate) fn problem_with(
        &self,
        span: Span,
        message: impl Into<String>,
        help: impl Into<Option<String>>,
    ) {
        self.report(span, message.into(), help.into(), None);
    }

    /// Something is said that must be said once, and was.
    pub(crate) fn problem_twice(&self, span: Span, message: impl Into<String>, first: Span) {
        self.report(span, message.into(), None, Some(first));
    }

    fn report(&self, span: Span, message: String, help: Option<String>, first: Option<Span>) {
        self.findings.count.set(self.findings.count() + 1);
        let mut kept = self.findings.kept.borrow_mut();
        if kept.len() == MAX_KEPT {
            return;
        }
        let (rule, field) = (self.rule.clone(), self.field.clone());
        kept.push(Finding { span, rule, field, message, help, first });
    }
}
