//! A rule file that cannot be used.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::problem::Problem;
use crate::scope::MAX_KEPT;
use crate::size::{TooLarge, Unread};

/// How many problems `Display` shows. Fixing these comes first if there are more.
const SHOWN: usize = 100;

/// Rules that cannot be used.
///
/// `Display` shows everything that is wrong, each problem with its line, not only the first one found.
#[derive(Debug)]
pub struct RuleFileError(Kind);

#[derive(Debug)]
enum Kind {
    Unread { path: PathBuf, error: io::Error },
    UnknownFormat { path: PathBuf },
    TooLarge(TooLarge),
    Wrong { problems: Vec<Problem> },
}

impl RuleFileError {
    pub(crate) fn unread(path: &Path, unread: Unread) -> Self {
        match unread {
            Unread::Io(error) => Self(Kind::Unread { path: path.to_owned(), error }),
            Unread::TooLarge(error) => Self::too_large(error),
        }
    }

    pub(crate) fn too_large(error: TooLarge) -> Self {
        Self(Kind::TooLarge(error))
    }

    pub(crate) fn unknown_format(path: &Path) -> Self {
        Self(Kind::UnknownFormat { path: path.to_owned() })
    }

    pub(crate) fn wrong(problems: Vec<Problem>) -> Self {
        Self(Kind::Wrong { problems })
    }

    /// Everything that is wrong in the file, in the order of the text, up to a thousand problems. Empty if
    /// the file could not be read at all, or is too large.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        match &self.0 {
            Kind::Wrong { problems } => problems,
            Kind::Unread { .. } | Kind::UnknownFormat { .. } | Kind::TooLarge(_) => &[],
        }
    }
}

impl fmt::Display for RuleFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Unread { path, .. } => write!(f, "the rules in {} cannot be read", path.display()),
            Kind::UnknownFormat { path } => write!(
                f,
                "the name of {} does not say what format it has; it ends in {}",
                path.display(),
                crate::Format::ENDINGS
            ),
            Kind::TooLarge(error) => error.fmt(f),
            Kind::Wrong { problems } => {
                for problem in problems.iter().take(SHOWN) {
                    write!(f, "{problem}\n\n")?;
                }
                match problems.len() {
                    1 => f.write_str("1 error: these rules are not used"),
                    MAX_KEPT => write!(
                        f,
                        "{MAX_KEPT} errors or more, of which {SHOWN} are shown: these rules are not used"
                    ),
                    all if all > SHOWN => {
                        write!(f, "{all} errors, of which {SHOWN} are shown: these rules are not used")
                    }
                    all => write!(f, "{all} errors: these rules are not used"),
                }
            }
        }
    }
}

impl Error for RuleFileError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
            Kind::Unread { error, .. } => Some(error),
            Kind::UnknownFormat { .. } | Kind::TooLarge(_) | Kind::Wrong { .. } => None,
        }
    }
}
