//! Rules in a file, reloaded when it changes.

#[cfg(target_os = "linux")]
mod chain;
mod settle;
#[cfg(not(target_os = "linux"))]
#[path = "unwatched.rs"]
mod watch;
#[cfg(target_os = "linux")]
mod watch;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

use self::settle::{Settling, Step};
use self::watch::Watch;
use super::{Document, LEAST_POLL, LONGEST_POLL, Source, SourceError};
use crate::Format;
use crate::size::{self, Unread};

/// How often a file is polled by default.
const POLL: Duration = Duration::from_secs(5);

/// Rules in a file, which are read again when it changes.
///
/// What is watched is the path, not the file found there at first. This covers a file that is written under
/// another name and then renamed, as editors do; links on the way that are changed to point elsewhere, as
/// Kubernetes does with config maps; and a file that goes away and comes back. Changes in quick succession
/// are read once it is quiet, and a file that is written in place is read once it is closed. Writing in place
/// still risks that half of the file is read, if writing takes longer than some seconds or the file is not
/// watched. Rename the file into its place instead.
///
/// On Linux the system reports changes (inotify). On every system the file is also polled, because some file
/// systems, such as network file systems, report nothing. The system can also watch only a limited number of
/// directories. Beyond that only polling is left, which is logged (with the feature `tracing`).
///
/// The version is a digest of the text. If the file is touched but not changed, nothing happens.
///
/// ```no_run
/// use ratekeeper_rules::FileSource;
///
/// let source = FileSource::new("/etc/gateway/rules.toml");
/// ```
#[must_use]
pub struct FileSource {
    path: PathBuf,
    format: Option<Format>,
    poll_every: Duration,
    is_watched: bool,
    watch: Option<Watch>,
    /// Why it is not watched although it should be.
    unwatched: Option<String>,
    settling: Settling,
    next_poll: Option<Instant>,
}

impl FileSource {
    /// The file at a path, whose extension determines its format.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            format: None,
            poll_every: POLL,
            is_watched: true,
            watch: None,
            unwatched: None,
            settling: Settling::default(),
            next_poll: None,
        }
    }

    /// Sets the format, for a path without its extension.
    pub fn format(self, format: Format) -> Self {
        Self { format: Some(format), ..self }
    }

    /// Sets how often the file is polled, regardless of what the system reports; every five seconds by
    /// default. Less than ten milliseconds count as ten, and more than a year as one.
    pub fn poll_every(self, interval: Duration) -> Self {
        Self { poll_every: interval.clamp(LEAST_POLL, LONGEST_POLL), ..self }
    }

    /// Sets whether the system is asked to report changes, as it is by default. Otherwise the file is only
    /// polled.
    pub fn watch(self, on: bool) -> Self {
        Self { is_watched: on, ..self }
    }

    /// Watches the file as it is found now, unless that is already watched.
    async fn watch_now(&mut self) {
        if !self.is_watched {
            return;
        }
        let (path, before) = (self.path.clone(), self.watch.take());
        // On another thread, as the system takes a moment to end a watch.
        let watch = spawn_blocking(move || match before.filter(|watch| watch.is_current(&path)) {
            Some(watch) => Ok(watch),
            None => Watch::new(&path),
        });
        match watch.await {
            Ok(Ok(watch)) => {
                self.watch = Some(watch);
                self.unwatched = None;
            }
            Ok(Err(error)) => self.note_unwatched(error.to_string()),
            // How tokio reports that a runtime has no I/O.
            Err(error) => self.note_unwatched(error.to_string()),
        }
    }

    fn note_unwatched(&mut self, reason: String) {
        if self.unwatched.as_ref() != Some(&reason) {
            crate::told::unwatched(&self.path, &reason, self.poll_every);
            self.unwatched = Some(reason);
        }
    }
}

impl Source for FileSource {
    fn kind(&self) -> &'static str {
        "file"
    }

    async fn read(&mut self, max_size: usize) -> Result<Document, SourceError> {
        let path = self.path.clone();
        let unread = |unread: Unread| match unread {
            Unread::Io(cause) => {
                SourceError::new(format!("the rules in {} cannot be read", path.display())).because(cause)
            }
            Unread::TooLarge(error) => SourceError::new(error.to_string()),
        };
        // Whatever happens from here on is a change to come.
        self.settling.clear();
        self.watch_now().await;
        let format = self
            .format
            .or_else(|| Format::of(&path))
            .ok_or_else(|| SourceError::new(crate::RuleFileError::unknown_format(&path).to_string()));
        let found = spawn_blocking({
            let path = path.clone();
            move || read(&path, max_size)
        });
        let text = found.await.unwrap_or_else(|error| Err(io::Error::from(error).into()));
        self.next_poll = Some(Instant::now() + self.poll_every);
        Ok(Document::new(path.to_string_lossy(), format?, text.map_err(unread)?))
    }

    async fn changed(&mut self) {
        let poll = self.next_poll.unwrap_or_else(Instant::now);
        loop {
            let quiet = self.settling.quiet_at();
            // While somebody writes, wait, and do not poll in between.
            let wake = quiet.unwrap_or(poll);
            let Some(watch) = &mut self.watch else { return sleep_until(wake).await };
            tokio::select! {
                () = sleep_until(wake) => return,
                told = watch.changed() => match told {
                    Ok(step) => self.settling.add(step, Instant::now()),
                    // What it would have reported is unknown.
                    Err(error) => {
                        self.watch = None;
                        self.note_unwatched(error.to_string());
                        self.settling.add(Step::Other, Instant::now());
                    }
                },
            }
        }
    }
}

/// Reads a file, but only a regular one: a pipe might never end.
fn read(path: &Path, max_size: usize) -> Result<Vec<u8>, Unread> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("this is no file").into());
    }
    size::read_file(path, max_size)
}

impl fmt::Debug for FileSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSource")
            .field("path", &self.path)
            .field("format", &self.format)
            .field("poll_every", &self.poll_every)
            .field("is_watched", &self.watch.is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs::{self, File};
    use std::io::Write;

    use tokio::time::timeout;

    use super::*;
    use crate::size::MAX_SIZE;

    const FIRST: &str = "[[rules]]\nname = \"a\"\nquota = \"1/s\"\n";
    const SECOND: &str = "[[rules]]\nname = \"b\"\nquota = \"1/s\"\n";

    async fn source(path: &Path, poll_every: Duration) -> FileSource {
        let mut source = FileSource::new(path).poll_every(poll_every);
        source.read(MAX_SIZE).await.expect("it is there");
        source
    }

    /// Half of a file that ends between two rules is valid, and is not what was meant.
    #[tokio::test]
    async fn a_file_is_read_when_it_is_closed() {
        for poll_every in [Duration::from_millis(100), Duration::MAX] {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("rules.toml");
            fs::write(&path, FIRST).expect("it is written");
            let mut source = source(&path, poll_every).await;
            let mut file = File::create(&path).expect("it is written over");
            file.write_all(FIRST.as_bytes()).expect("it is written");
            let early = timeout(Duration::from_millis(400), source.changed()).await;
            assert!(early.is_err(), "there is more to come");
            file.write_all(SECOND.as_bytes()).expect("it is written");
            drop(file);
            source.changed().await;
            let document = source.read(MAX_SIZE).await.expect("it is there");
            assert_eq!(document.text(), format!("{FIRST}{SECOND}").as_bytes());
        }
    }

    /// On many file systems the new one is likely to get the inode number of the one before.
    #[tokio::test]
    async fn a_directory_that_is_made_anew_is_watched_anew() {
        let root = tempfile::tempdir().expect("a directory");
        let (config, path) = (root.path().join("config"), root.path().join("config/rules.toml"));
        let write = |text: &str| {
            fs::create_dir_all(&config).expect("it is made");
            fs::write(&path, text).expect("it is written");
        };
        write(FIRST);
        let mut source = source(&path, Duration::MAX).await;
        for _ in 0..5 {
            fs::remove_dir_all(&config).expect("it is removed");
            write(FIRST);
            source.changed().await;
            source.read(MAX_SIZE).await.expect("it is there");
            // Events that are still to be reported about it.
            while timeout(Duration::from_millis(300), source.changed()).await.is_ok() {
                source.read(MAX_SIZE).await.expect("it is there");
            }
            fs::write(&path, SECOND).expect("it is written");
            let told = timeout(Duration::from_secs(10), source.changed()).await;
            assert!(told.is_ok(), "nobody tells of the new directory");
            assert_eq!(source.read(MAX_SIZE).await.expect("it is there").text(), SECOND.as_bytes());
        }
    }
}
