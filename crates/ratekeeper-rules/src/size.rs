//! The size of documents, which is bounded before they are parsed: a parser takes a multiple of it.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The largest document that is read by default, in bytes. Some ten thousand rules fit.
pub(crate) const MAX_SIZE: usize = 1 << 20;

/// A document that is larger than is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge {
    name: String,
    /// `None` if it is not known, because nobody read to the end.
    size: Option<u64>,
    max: usize,
}

impl TooLarge {
    /// Whether this many bytes are too many.
    pub(crate) fn check(name: &str, size: usize, max: usize) -> Result<(), Self> {
        if size <= max {
            return Ok(());
        }
        Err(Self { name: name.to_owned(), size: Some(size as u64), max })
    }
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, size, max } = self;
        match size {
            Some(size) => write!(f, "the rules in {name} have {size} bytes; at most {max} are read"),
            None => {
                write!(f, "the rules in {name} have more than {max} bytes, which are the most that are read")
            }
        }
    }
}

/// Why a file could not be read.
#[derive(Debug)]
pub(crate) enum Unread {
    Io(io::Error),
    TooLarge(TooLarge),
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Unread> for io::Error {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::Io(error) => error,
            Unread::TooLarge(error) => Self::new(io::ErrorKind::FileTooLarge, error.to_string()),
        }
    }
}

/// Reads a file that has at most `max` bytes. Of a larger one no more is read than it takes to notice.
pub(crate) fn read_file(path: &Path, max: usize) -> Result<Vec<u8>, Unread> {
    let too_large =
        |size| Unread::TooLarge(TooLarge { name: path.to_string_lossy().into_owned(), size, max });
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    if size > max as u64 {
        return Err(too_large(Some(size)));
    }
    // It may still grow, and what is not a regular file has no size.
    let mut text = Vec::new();
    file.take((max as u64).saturating_add(1)).read_to_end(&mut text)?;
    if text.len() > max { Err(too_large(None)) } else { Ok(text) }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_size_is_not_read_to_its_end() {
        let Err(Unread::TooLarge(error)) = read_file(Path::new("/dev/zero"), 100) else {
            panic!("it has no end");
        };
        let expected = "the rules in /dev/zero have more than 100 bytes, which are the most that are read";
        assert_eq!(error.to_string(), expected);
    }
}
