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
    /// [YAML](https://yaml.org) 1.2, without aliases and tags.
    #[cfg(feature = "yaml")]
    Yaml,
}

impl Format {
    #[cfg(not(feature = "yaml"))]
    pub(crate) const ENDINGS: &str = "`.toml` or `.json`";
    #[cfg(feature = "yaml")]
    pub(crate) const ENDINGS: &str = "`.toml`, `.json`, `.yaml` or `.yml`";

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
        let ending = path.as_ref().extension()?.to_str()?.to_ascii_lowercase();
        match &*ending {
            "toml" => Some(Self::Toml),
            "json" => Some(Self::Json),
            #[cfg(feature = "yaml")]
            "yaml" | "yml" => Some(Self::Yaml),
            _ => None,
        }
    }
}
