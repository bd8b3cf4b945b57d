//! Rules that did not come into force.

use std::error::Error;
use std::fmt;

use tollgate::ConfigError;

use crate::{Document, Format, Problem, RuleFileError, SourceError};

/// Rules that did not come into force, because they could not be read or make no sense.
///
/// `Display` shows all of it: why they could not be read, or all that is wrong with them, each with its line.
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
    /// Each makes sense, but they do not fit together with those that the application has.
    Unfit(ConfigError),
    /// Looking at them failed, which nothing in them should be able to do.
    Failed(String),
}

impl ReloadError {
    pub(super) fn unread(error: SourceError) -> Self {
        Self(Kind::Unread(error))
    }

    pub(super) fn refused(name: &str, version: &str, format: Format, reason: Reason) -> Self {
        Self(Kind::Refused { version: version.to_owned(), format, name: name.to_owned(), reason })
    }

    /// Whether it is this that was refused. The same text can make sense in another format.
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

    /// All that is wrong with the rules, as it stands there. See [`RuleFileError::problems`].
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
                    // Some say what their cause says.
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

// What `Display` shows has all causes in it.
impl Error for ReloadError {}
