//! The formats of rules.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// The format of rules.
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

    /// The format of a file, by its extension.
    ///
    /// ```
    /// use ratekeeper_rules::Format;
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

/// The name of the format, such as `toml`.
impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Toml => "toml",
            Self::Json => "json",
            #[cfg(feature = "yaml")]
            Self::Yaml => "yaml",
        })
    }
}

/// By its name, which is the extension of its files.
impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        Self::of(format!("rules.{name}")).ok_or_else(|| UnknownFormat(name.to_owned()))
    }
}

/// A name that is not that of a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFormat(String);

impl fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = crate::excerpt::harmless_text(&self.0, 40);
        write!(f, "`{name}` is no format that is read here; files end in {}", Format::ENDINGS)
    }
}

impl std::error::Error for UnknownFormat {}
