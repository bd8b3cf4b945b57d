//! Being told by the system when a path may lead to another file, or to another text.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use futures_util::StreamExt;
use inotify::{EventMask, EventOwned, EventStream, Inotify, WatchDescriptor, WatchMask};

use super::chain::{Step, steps};
use super::settle;

/// Room for some events at once.
const BUFFER: usize = 4096;
/// How often a path may change while it is being looked at.
const ATTEMPTS: usize = 8;

/// All that can happen to a name in a directory.
fn mask() -> WatchMask {
    WatchMask::CREATE
        | WatchMask::DELETE
        | WatchMask::MOVE
        | WatchMask::MODIFY
        | WatchMask::CLOSE_WRITE
        | WatchMask::ATTRIB
        | WatchMask::ONLYDIR
}

/// A path that is watched.
pub(super) struct Watch {
    events: EventStream<Vec<u8>>,
    directories: HashMap<WatchDescriptor, PathBuf>,
    way: Way,
    /// Whether the system has ended the watch of a directory. Another in its place can have the same number.
    is_broken: bool,
}

/// How a path leads to a file: by which names, and in which directories, as another can be put in the place of one.
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

    /// Watches the directories. Of those further up, some may be closed to this process, and are left to the polls; the
    /// one that the file is in has to be there.
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
    /// Begins to watch. From when this comes back, nothing is missed.
    pub(super) fn new(path: &Path) -> io::Result<Self> {
        let mut way = Way::of(path);
        for _ in 0..ATTEMPTS {
            let before = match way {
                Ok(before) => before,
                // A directory has gone between two looks.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    way = Way::of(path);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let inotify = Inotify::init()?;
            let added = before.add_to(&inotify);
            way = Way::of(path);
            // What has changed before it was watched is watched now only if it is the same still.
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

    /// Waits until something has happened on the way to the file, or to the file. Can be dropped at any time.
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

    /// Whether an event is about a name that leads to the file, and not about its neighbours.
    fn matters(&self, event: &EventOwned) -> bool {
        let (Some(directory), Some(name)) = (self.directories.get(&event.wd), &event.name) else {
            // About a directory itself, or more happened than the system keeps.
            return event.mask.intersects(EventMask::Q_OVERFLOW | EventMask::IGNORED | EventMask::UNMOUNT);
        };
        self.way.steps.iter().any(|step| step.is(directory, name))
    }
}

/// What an event says of whether the file is written to.
fn step(event: &EventOwned) -> settle::Step {
    if event.mask.contains(EventMask::MODIFY) {
        settle::Step::Written
    } else if event.mask.intersects(EventMask::CLOSE_WRITE | EventMask::MOVED_TO | EventMask::DELETE) {
        settle::Step::Done
    } else {
        settle::Step::Other
    }
}
