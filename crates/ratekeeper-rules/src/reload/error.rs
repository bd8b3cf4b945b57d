//! Rules that did not come into force.

use std::error::Error;
use std::fmt;

use ratekeeper::ConfigError;

use crate::{Document, Format, Problem, RuleFileError, SourceError};

/// Rules that did not come into force, because they could not be read or are invalid.
///
/// `Display` shows everything: why they could not be read, or all that is wrong with them, each problem with
/// its line.
#[derive(Debug)]
pub struct ReloadError(Kind);

#[derive(Debug)]
enum Kind {
    Unread(SourceError),
    Refused { version: String, format: Format, name: String, reason: Reason },
}

/// What is wrong with rules that can be read.
#[derive(Debug)]
pub(super) enum Reason {
    Wrong(RuleFileError),
    /// Each rule is valid, but they do not fit together with those of the application.
    Unfit(ConfigError),
    /// Checking them failed, which nothing in them should be able to cause.
    Failed(String),
}

impl ReloadError {
    pub(super) fn unread(error: SourceError) -> Self {
        Self(Kind::Unread(error))
    }

    pub(super) fn refused(name: &str, version: &str, format: Format, reason: Reason) -> Self {
        Self(Kind::Refused { version: version.to_owned(), format, name: name.to_owned(), reason })
    }

    /// Whether this is the document that was refused. The same text can be valid in another format.
    pub(super) fn has_refused(&self, document: &Document) -> bool {
        match &self.0 {
            Kind::Unread(_) => false,
            Kind::Refused { version, format, .. } => {
                version == document.version() && *format == document.format()
            }
        }
    }

    /// The version that was refused; `None` if it could not even be read.
    #[must_use]
    pub fn refused_version(&self) -> Option<&str> {
        match &self.0 {
            Kind::Unread(_) => None,
            Kind::Refused { version, .. } => Some(version),
        }
    }

    /// Everything that is wrong with the rules, in the order of the text. See [`RuleFileError::problems`].
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        match &self.0 {
            Kind::Refused { reason: Reason::Wrong(error), .. } => error.problems(),
            Kind::Refused { .. } | Kind::Unread(_) => &[],
        }
    }
}

impl fmt::Display for ReloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Unread(error) => {
                let mut shown = error.to_string();
                let mut cause = error.source();
                while let Some(error) = cause {
                    let said = error.to_string();
                    // Some errors repeat the message of their cause.
                    if !shown.ends_with(&said) {
                        shown = format!("{shown}: {said}");
                    }
                    cause = error.source();
                }
                f.write_str(&shown)
            }
            Kind::Refused { reason: Reason::Wrong(error), .. } => write!(f, "{error}"),
            Kind::Refused { name, reason: Reason::Unfit(error), .. } => {
                write!(f, "the rules in {name} cannot be used: {error}")
            }
            Kind::Refused { name, reason: Reason::Failed(error), .. } => {
                write!(f, "the rules in {name} could not be looked at: {error}")
            }
        }
    }
}

// `Display` already includes all causes.
impl Error for ReloadError {}
