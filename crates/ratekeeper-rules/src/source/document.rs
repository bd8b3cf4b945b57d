//! The text of rules, as a source provides it.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::Format;

/// How many bytes of the digest are in a version. Nobody has so many sets of rules that two would have the
/// same.
const DIGEST_BYTES: usize = 6;

/// The text of a set of rules, and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    name: String,
    format: Format,
    text: Vec<u8>,
    version: String,
}

impl Document {
    /// Creates a document. Errors refer to it by `name`, such as the path of a file.
    ///
    /// Its version is a digest of the text:
    ///
    /// ```
    /// use ratekeeper_rules::{Document, Format};
    ///
    /// let document = Document::new("rules.json", Format::Json, "{}");
    /// assert_eq!(document.version(), "44136fa355b3");
    /// assert_eq!(document.revision(7).version(), "7-44136fa355b3");
    /// ```
    pub fn new(name: impl Into<String>, format: Format, text: impl Into<Vec<u8>>) -> Self {
        let text = text.into();
        let version = digest(&text);
        Self { name: name.into(), format, text, version }
    }

    /// Puts the source's number for this set before the digest.
    ///
    /// The digest stays, as a text may be changed without the number: by hand, or by restoring a backup.
    #[must_use]
    pub fn revision(self, number: u64) -> Self {
        let version = format!("{number}-{}", digest(&self.text));
        Self { version, ..self }
    }

    /// A document that was kept, with the version that it had.
    pub(crate) fn kept(name: &str, format: Format, text: &str, version: &str) -> Self {
        Self { name: name.to_owned(), format, text: text.into(), version: version.to_owned() }
    }

    /// The name that errors use for it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its format.
    #[must_use]
    pub const fn format(&self) -> Format {
        self.format
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The version. Two documents of one source have the same version only if their contents are the same.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }
}

fn digest(text: &[u8]) -> String {
    Sha256::digest(text).iter().take(DIGEST_BYTES).fold(String::new(), |mut hex, byte| {
        // Writing to a `String` does not fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
