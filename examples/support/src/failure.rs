//! Why a program exits.

use std::error::Error;
use std::fmt;

/// Why a program exits: returned from `main`, it makes the program exit with 1.
///
/// Any error converts into it, with its causes.
pub struct Failure(String);

impl Failure {
    /// A failure with this message.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

// What `main` returns is shown to people by its `Debug`.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(chain(&error))
    }
}

/// An error and its causes.
pub(crate) fn chain(error: &dyn Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", chain(cause)),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Fire(std::io::Error);

    impl fmt::Display for Fire {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("it burns")
        }
    }

    impl Error for Fire {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn tells_the_cause_as_well() {
        let failure = Failure::from(Fire(std::io::Error::other("lightning")));
        assert_eq!(format!("{failure:?}"), "it burns: lightning");
    }
}
