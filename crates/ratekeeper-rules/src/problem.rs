//! Something that is wrong in a file, as it is reported.

use std::fmt;
use std::sync::Arc;

use crate::excerpt::{Excerpt, Lines, harmless_text};
use crate::scope::{Finding, Findings, RuleLabel};

/// The longest message, in characters. Some quote text of the file.
const MAX_MESSAGE: usize = 400;
/// The longest name of a rule or a field that is shown, in characters.
const MAX_NAME: usize = 80;

/// Something that is wrong in a file: where, what, and what would be right.
///
/// `Display` shows all of it, with the line:
///
/// ```text
/// error: rule `login`, `on-missing-key`: `skp` is none of `shared`, `skip` and `deny`
///  --> rules.toml:4:18
///   |
/// 4 | on-missing-key = "skp"
///   |                  ^^^^^
///   = help: did you mean `skip`?
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    file: Arc<str>,
    excerpt: Excerpt,
    rule: Option<Label>,
    field: Option<String>,
    message: String,
    help: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Label {
    Name(String),
    Number(usize),
}

impl Problem {
    pub(crate) fn all(file: &str, text: &str, findings: Findings) -> Vec<Self> {
        let file = Arc::from(harmless_text(file, MAX_MESSAGE));
        let lines = Lines::new(text);
        findings.into_sorted().into_iter().map(|finding| Self::new(&file, &lines, finding)).collect()
    }

    fn new(file: &Arc<str>, lines: &Lines<'_>, finding: Finding) -> Self {
        let first = finding.first.map(|first| format!("the first is in line {}", lines.line(first.start)));
        Self {
            file: Arc::clone(file),
            excerpt: lines.excerpt(&finding.span),
            rule: finding.rule.map(|rule| match rule {
                RuleLabel::Name(name) => Label::Name(harmless_text(&name, MAX_NAME)),
                RuleLabel::Number(number) => Label::Number(number),
            }),
            field: Some(harmless_text(&finding.field, MAX_NAME)).filter(|field| !field.is_empty()),
            message: harmless_text(&finding.message, MAX_MESSAGE),
            help: first.or(finding.help).map(|help| harmless_text(&help, MAX_MESSAGE)),
        }
    }

    /// The file, by the name it was read under.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The line, starting at one.
    #[must_use]
    pub const fn line(&self) -> usize {
        self.excerpt.line
    }

    /// The column, in characters, starting at one.
    #[must_use]
    pub const fn column(&self) -> usize {
        self.excerpt.column
    }

    /// The name of the rule, if the problem is in a rule that has one.
    #[must_use]
    pub fn rule(&self) -> Option<&str> {
        match &self.rule {
            Some(Label::Name(name)) => Some(name),
            Some(Label::Number(_)) | None => None,
        }
    }

    /// The field, such as `quota` or `tiers.pro.quota`, if the problem is in one.
    #[must_use]
    pub fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }

    /// What is wrong.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What would be right, as far as that is known.
    #[must_use]
    pub fn help(&self) -> Option<&str> {
        self.help.as_deref()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("error: ")?;
        match &self.rule {
            Some(Label::Name(name)) => write!(f, "rule `{name}`")?,
            Some(Label::Number(number)) => write!(f, "rule {number}")?,
            None => {}
        }
        if let Some(field) = &self.field {
            write!(f, "{}`{field}`", if self.rule.is_some() { ", " } else { "" })?;
        }
        if self.rule.is_some() || self.field.is_some() {
            f.write_str(": ")?;
        }
        let margin = " ".repeat(self.line().to_string().len());
        writeln!(f, "{}", self.message)?;
        writeln!(f, "{margin}--> {}:{}:{}", self.file, self.line(), self.column())?;
        write!(f, "{}", self.excerpt)?;
        match &self.help {
            Some(help) => write!(f, "\n{margin} = help: {help}"),
            None => Ok(()),
        }
    }
}
