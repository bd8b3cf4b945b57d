//! Directories that do not outlive the test, and neither do the servers in them.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{Error, Result};

/// The file in a server's directory that names the process that has to end with it, and the signal for that.
pub(crate) const PID_FILE: &str = "pid";

/// What is done when the test's process has ended in any way: then its end of the pipe is closed.
///
/// An interrupt from the keyboard reaches the shell as well, and must not end it before the servers.
const CLEAN_UP: &str = r#"
trap '' HUP INT TERM
cat
for file in "$0"/*/pid; do
    if [ -f "$file" ]; then kill $(cat "$file"); fi
done
rm -rf "$0"
"#;

/// A directory that is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    pub(crate) fn new() -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let path = root()?.join(NEXT.fetch_add(1, Ordering::Relaxed).to_string());
        create(&path)?;
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A destructor cannot do more about a failure; the shell will remove it.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The directory of this process.
struct Root {
    path: PathBuf,
    /// Holds the pipe open for as long as this process lives.
    _shell: Child,
}

fn root() -> Result<&'static Path> {
    static ROOT: OnceLock<io::Result<Root>> = OnceLock::new();
    match ROOT.get_or_init(Root::new) {
        Ok(root) => Ok(&root.path),
        Err(error) => Err(Error::new(format!("no directory for servers: {error}"))),
    }
}

impl Root {
    fn new() -> io::Result<Self> {
        let path = unique(&std::env::temp_dir())?;
        let shell = Command::new("sh")
            .args(["-c", CLEAN_UP])
            .arg(&path)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { path, _shell: shell })
    }
}

/// A new directory. Its name is short, because the path of a Unix socket must be.
fn unique(parent: &Path) -> io::Result<PathBuf> {
    let mut attempt = 0;
    loop {
        let path = parent.join(format!("ratekeeper-{}-{attempt}", process::id()));
        match create(&path) {
            // Left by a process that had the same id before the machine was restarted.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => attempt += 1,
            Err(error) => return Err(error),
            Ok(()) => return Ok(path),
        }
    }
}

fn create(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(path)
}
