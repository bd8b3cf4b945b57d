//! Systems on which files are only polled.

use std::io;
use std::path::Path;

use super::settle;

/// There are no watches here.
pub(super) enum Watch {}

impl Watch {
    pub(super) fn new(_path: &Path) -> io::Result<Self> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "files are watched on Linux only"))
    }

    pub(super) fn is_current(&self, _path: &Path) -> bool {
        match *self {}
    }

    pub(super) async fn changed(&mut self) -> io::Result<settle::Step> {
        match *self {}
    }
}
