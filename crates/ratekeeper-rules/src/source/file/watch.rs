//! Notifications from the system when a path may lead to another file, or to another text.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use futures_util::StreamExt;
use inotify::{EventMask, EventOwned, EventStream, Inotify, WatchDescriptor, WatchMask};

use super::chain::{Step, steps};
use super::settle;

/// Room for several events at once.
const BUFFER: usize = 4096;
/// How often a path may change while its watch is set up.
const ATTEMPTS: usize = 8;

/// Everything that can happen to a name in a directory.
fn mask() -> WatchMask {
    WatchMask::CREATE
        | WatchMask::DELETE
        | WatchMask::MOVE
        | WatchMask::MODIFY
        | WatchMask::CLOSE_WRITE
        | WatchMask::ATTRIB
        | WatchMask::ONLYDIR
}

/// A watched path.
pub(super) struct Watch {
    events: EventStream<Vec<u8>>,
    directories: HashMap<WatchDescriptor, PathBuf>,
    way: Way,
    /// Whether the system has ended the watch of a directory. Another directory in its place can have the
    /// same number.
    is_broken: bool,
}

/// How a path leads to a file: by which names, and in which directories, as a directory can be replaced by
/// another.
#[derive(Debug, PartialEq, Eq)]
struct Way {
    steps: Vec<Step>,
    directories: Vec<(PathBuf, u64, u64)>,
}

impl Way {
    fn of(path: &Path) -> io::Result<Self> {
        let steps = steps(path)?;
        let mut paths: Vec<_> = steps.iter().map(|step| step.directory.clone()).collect();
        paths.sort();
        paths.dedup();
        let number = |path: PathBuf| {
            let found = fs::metadata(&path)?;
            Ok((path, found.dev(), found.ino()))
        };
        let directories = paths.into_iter().map(number).collect::<io::Result<_>>()?;
        Ok(Self { steps, directories })
    }

    /// Watches the directories. Some of those further up may be inaccessible to this process, and are left to
    /// polling; the directory of the file has to be watchable.
    fn add_to(&self, inotify: &Inotify) -> io::Result<HashMap<WatchDescriptor, PathBuf>> {
        let nearest = self.steps.last().map(|step| &step.directory);
        let mut added = HashMap::new();
        for (directory, ..) in &self.directories {
            match inotify.watches().add(directory, mask()) {
                Ok(descriptor) => {
                    added.insert(descriptor, directory.clone());
                }
                Err(error)
                    if error.kind() == io::ErrorKind::PermissionDenied && Some(directory) != nearest => {}
                Err(error) => return Err(error),
            }
        }
        Ok(added)
    }
}

impl Watch {
    /// Starts watching. Nothing that happens after this returns is missed.
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let mut way = Way::of(path);
        for _ in 0..ATTEMPTS {
            let before = match way {
                Ok(before) => before,
                // A directory disappeared between two looks.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    way = Way::of(path);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let inotify = Inotify::init()?;
            let added = before.add_to(&inotify);
            way = Way::of(path);
            // A change before the watch began would be missed, so the watch counts only if the path still
            // leads the same way.
            match (added, &way) {
                (Ok(directories), Ok(after)) if *after == before => {
                    let events = inotify.into_event_stream(vec![0; BUFFER])?;
                    return Ok(Self { events, directories, way: before, is_broken: false });
                }
                (Err(error), _) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Err(io::Error::other("it changes faster than it can be watched"))
    }

    /// Whether what is watched still leads to the file.
    pub(super) fn is_current(&self, path: &Path) -> bool {
        !self.is_broken && Way::of(path).is_ok_and(|way| way == self.way)
    }

    /// Waits until something has happened to the file, or on the way to it. Can be dropped at any time.
    pub(super) async fn changed(&mut self) -> io::Result<settle::Step> {
        loop {
            match self.events.next().await {
                Some(Ok(event)) => {
                    self.is_broken |= event.mask.intersects(EventMask::IGNORED | EventMask::UNMOUNT);
                    if self.matters(&event) {
                        return Ok(step(&event));
                    }
                }
                Some(Err(error)) => return Err(error),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    /// Whether an event is about a name that leads to the file, and not about its neighbors.
    fn matters(&self, event: &EventOwned) -> bool {
        let (Some(directory), Some(name)) = (self.directories.get(&event.wd), &event.name) else {
            // The event is about a directory itself, or more happened than the system keeps.
            return event.mask.intersects(EventMask::Q_OVERFLOW | EventMask::IGNORED | EventMask::UNMOUNT);
        };
        self.way.steps.iter().any(|step| step.is(directory, name))
    }
}

/// What an event reveals about writing to the file.
fn step(event: &EventOwned) -> settle::Step {
    if event.mask.contains(EventMask::MODIFY) {
        settle::Step::Written
    } else if event.mask.intersects(EventMask::CLOSE_WRITE | EventMask::MOVED_TO | EventMask::DELETE) {
        settle::Step::Done
    } else {
        settle::Step::Other
    }
}
