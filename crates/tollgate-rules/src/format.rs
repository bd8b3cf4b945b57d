//! How rules are written.

use std::path::Path;

/// How rules are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// [TOML](https://toml.io) 1.1.
    Toml,
    /// JSON (RFC 8259).
    Json,
}

impl Format {
    pub(crate) const ENDINGS: &str = "`.toml` or `.json`";

    /// The format of a file, by the ending of its name.
    ///
    /// ```
    /// use tollgate_rules::Format;
    ///
    /// assert_eq!(Format::of("/etc/gateway/rules.toml"), Some(Format::Toml));
    /// assert_eq!(Format::of("rules.txt"), None);
    /// ```
    #[must_use]
    pub fn of(path: impl AsRef<Path>) -> Option<Self> {
        let ending = path.as_ref().extension()?.to_str()?;
        if ending.eq_ignore_ascii_case("toml") {
            Some(Self::Toml)
        } else if ending.eq_ignore_ascii_case("json") {
            Some(Self::Json)
        } else {
            None
        }
    }
}
