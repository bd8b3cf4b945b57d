//! The position in a file while it is read, and the problems found so far.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::tree::Span;

/// How many problems are kept. A file in which everything is wrong must not take more memory than it has
/// itself.
pub(crate) const MAX_KEPT: usize = 1_000;

/// All problems found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    kept: RefCell<Vec<Finding>>,
    count: Cell<usize>,
}

/// A problem, as it is found.
#[derive(Debug)]
pub(crate) struct Finding {
    pub(crate) span: Span,
    pub(crate) rule: Option<RuleLabel>,
    /// The path of fields to the problem, joined by dots; empty if it is not in a field.
    pub(crate) field: String,
    pub(crate) message: String,
    pub(crate) help: Option<String>,
    /// Where the same was first given, if it must not be repeated.
    pub(crate) first: Option<Span>,
}

/// How a rule is identified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RuleLabel {
    Name(Rc<str>),
    /// Its number, starting at one, if it has no readable name.
    Number(usize),
}

impl Findings {
    pub(crate) fn is_empty(&self) -> bool {
        self.count.get() == 0
    }

    /// How many were found, of which not all may have been kept.
    pub(crate) fn count(&self) -> usize {
        self.count.get()
    }

    /// In the order of the text.
    pub(crate) fn into_sorted(self) -> Vec<Finding> {
        let mut findings = self.kept.into_inner();
        findings.sort_by_key(|finding| finding.span.start);
        findings
    }
}

/// A rule and a field of it, or a part of the file outside of rules.
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

    /// A field within this scope.
    pub(crate) fn field(&self, name: &str) -> Self {
        let dot = if self.field.is_empty() { "" } else { "." };
        Self { findings: self.findings, rule: self.rule.clone(), field: format!("{}{dot}{name}", self.field) }
    }

    /// How many problems have been found so far, anywhere.
    pub(crate) fn found(&self) -> usize {
        self.findings.count()
    }

    /// Whether so many problems have been found that no more are kept, so that looking for others is in vain.
    pub(crate) fn is_full(&self) -> bool {
        self.found() >= MAX_KEPT
    }

    /// Reports a problem here.
    pub(crate) fn problem(&self, span: Span, message: impl Into<String>) {
        self.report(span, message.into(), None, None);
    }

    /// Reports a problem here, with what may have been meant.
    pub(crate) fn problem_with(
        &self,
        span: Span,
        message: impl Into<String>,
        help: impl Into<Option<String>>,
    ) {
        self.report(span, message.into(), help.into(), None);
    }

    /// Reports that something was given again that may be given only once.
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
