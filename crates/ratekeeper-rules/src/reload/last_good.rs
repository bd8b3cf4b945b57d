//! The rules that were in force last, kept in a file for the next start.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use super::set::{Reader, Set};
use crate::size;
use crate::{Document, Format, told};

/// How much the file may have besides the text.
const MAX_BESIDE: usize = 64 << 10;

/// The file in which they are kept.
#[derive(Clone, Debug)]
pub(super) struct LastGood(Arc<Path>);

impl LastGood {
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path.into())
    }

    /// Keeps rules that have come into force. They are in force even if that fails.
    pub(super) async fn keep(&self, document: Document) {
        let path = Arc::clone(&self.0);
        let written = spawn_blocking(move || write(&path, &document)).await;
        if let Err(error) = written.map_err(io::Error::from).and_then(|written| written) {
            told::not_kept(&self.0, &error);
        }
    }

    /// The rules that were kept, if there are any and they are valid.
    pub(super) async fn restore(&self, reader: &Arc<Reader>) -> Option<Set> {
        let (path, max_size) = (Arc::clone(&self.0), reader.registry.max_size());
        let document = spawn_blocking(move || read(&path, max_size))
            .await
            .map_err(io::Error::from)
            .and_then(|read| read);
        match document {
            Ok(document) => {
                reader.read(document).await.inspect_err(|error| told::not_restored(&self.0, error)).ok()
            }
            Err(error) => {
                told::not_restored(&self.0, &error);
                None
            }
        }
    }
}

fn read(path: &Path, max_size: usize) -> io::Result<Document> {
    // JSON writes a control character as six.
    let max_size = max_size.saturating_mul(6).saturating_add(MAX_BESIDE);
    let kept: Value = serde_json::from_slice(&size::read_file(path, max_size)?)?;
    let field = |name: &str| {
        let missing = || io::Error::new(io::ErrorKind::InvalidData, format!("`{name}` is missing"));
        kept.get(name).and_then(Value::as_str).ok_or_else(missing)
    };
    let format: Format =
        field("format")?.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(Document::kept(field("name")?, format, field("text")?, field("version")?))
}

/// Writes a new file beside the previous one and renames it into its place: whenever the process ends, one of
/// the two is complete.
fn write(path: &Path, document: &Document) -> io::Result<()> {
    let text = std::str::from_utf8(document.text())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    let kept = json!({
        "name": document.name(),
        "format": document.format().to_string(),
        "version": document.version(),
        "text": text,
    });
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = PathBuf::from(beside);
    let mut file = fs::File::create(&beside)?;
    file.write_all(kept.to_string().as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size::MAX_SIZE;

    #[test]
    fn what_is_kept_is_what_is_read() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("last-good.json");
        let document = Document::new("rules.toml", Format::Toml, "a = \"ä\\n\"\n").revision(3);
        write(&path, &document).expect("it is written");
        write(&path, &document).expect("it is written over");
        assert_eq!(read(&path, MAX_SIZE).expect("it is read"), document);
    }

    #[test]
    fn any_text_that_is_not_too_large_can_be_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("last-good.json");
        let document = Document::new("rules.toml", Format::Toml, "\u{1}".repeat(MAX_SIZE));
        write(&path, &document).expect("it is written");
        assert_eq!(read(&path, MAX_SIZE).expect("it is read"), document);
        fs::File::create(&path).and_then(|file| file.set_len(1 << 40)).expect("a file");
        assert_eq!(read(&path, MAX_SIZE).expect_err("too large").kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn what_is_no_set_is_an_error() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("last-good.json");
        assert_eq!(read(&path, MAX_SIZE).expect_err("nothing").kind(), io::ErrorKind::NotFound);
        for text in [
            "",
            "[]",
            "{\"format\": \"toml\"}",
            "{\"format\": \"ini\", \"name\": \"\", \"text\": \"\", \"version\": \"\"}",
        ] {
            fs::write(&path, text).expect("it is written");
            assert!(read(&path, MAX_SIZE).is_err(), "{text}");
        }
    }
}
