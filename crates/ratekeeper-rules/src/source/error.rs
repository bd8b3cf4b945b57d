//! Rules that cannot be read.

use std::error::Error;
use std::fmt;

/// A source could not be read.
///
/// `Display` leaves out the cause, which [`source`](Error::source) returns.
#[derive(Debug)]
pub struct SourceError {
    message: String,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

impl SourceError {
    /// An error that says what could not be read, and where.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), cause: None }
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { cause: Some(cause.into()), ..self }
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for SourceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|cause| cause as _)
    }
}
