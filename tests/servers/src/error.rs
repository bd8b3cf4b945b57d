//! Errors about servers.

use std::{error, fmt, io};

/// What a server did not do, in words for the reader of the test's output.
pub struct Error {
    message: String,
    code: Option<String>,
    lacks_tls: bool,
}

/// A result whose error is about a server.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: None, lacks_tls: false }
    }

    pub(crate) fn without_tls(message: impl Into<String>) -> Self {
        Self { lacks_tls: true, ..Self::new(message) }
    }

    /// The first word of the server's answer if that was an error, such as `READONLY`.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// Whether the server did not start because it was built without TLS.
    #[must_use]
    pub fn lacks_tls(&self) -> bool {
        self.lacks_tls
    }

    /// The same error, preceded by what was being done.
    pub(crate) fn context(mut self, doing: impl fmt::Display) -> Self {
        self.message = format!("{doing}: {}", self.message);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// The plain message: `expect` and tests that return an error show this one.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::new(error.to_string())
    }
}

impl From<redis::RedisError> for Error {
    fn from(error: redis::RedisError) -> Self {
        Self { code: error.code().map(str::to_owned), ..Self::new(error.to_string()) }
    }
}

impl From<rcgen::Error> for Error {
    fn from(error: rcgen::Error) -> Self {
        Self::new(error.to_string())
    }
}
