//! The names through which a path leads to a file.
//!
//! A path can lead to another file without the file being touched: when a link on the way is replaced, as
//! Kubernetes does with the directories of config maps. So every name on the way to the file matters.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// How many links are followed, the same as Linux.
const MAX_LINKS: usize = 40;

/// A name in a directory, on the way to a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Step {
    pub(super) directory: PathBuf,
    pub(super) name: OsString,
}

impl Step {
    pub(super) fn is(&self, directory: &Path, name: &OsStr) -> bool {
        self.directory == directory && self.name == name
    }
}

/// The names that decide which file a path leads to: each link on the way, the directory that the file is in,
/// and the file. If the path leads nowhere, the names up to the first one that does not exist.
pub(super) fn steps(path: &Path) -> io::Result<Vec<Step>> {
    let mut steps = Vec::new();
    let mut at = PathBuf::new();
    let mut ahead = names(&std::path::absolute(path)?);
    let mut links = 0;
    while let Some(name) = ahead.pop_front() {
        match Path::new(&name).components().next() {
            Some(Component::Normal(_)) => {}
            Some(Component::ParentDir) => {
                at.pop();
                continue;
            }
            Some(Component::CurDir) | None => continue,
            Some(Component::RootDir | Component::Prefix(_)) => {
                at.push(name);
                continue;
            }
        }
        let found = fs::symlink_metadata(at.join(&name));
        let is_link = found.as_ref().is_ok_and(fs::Metadata::is_symlink);
        let is_there = found.is_ok();
        // The directory that the file is in can be moved away with everything in it.
        if is_link || !is_there || ahead.len() <= 1 {
            steps.push(Step { directory: at.clone(), name: name.clone() });
        }
        if !is_there {
            break;
        }
        if is_link {
            links += 1;
            if links > MAX_LINKS {
                return Err(io::Error::other("there are too many links on the way"));
            }
            let target = fs::read_link(at.join(&name))?;
            if target.is_absolute() {
                at = PathBuf::new();
            }
            names(&target).into_iter().rev().for_each(|name| ahead.push_front(name));
        } else {
            at.push(name);
        }
    }
    Ok(steps)
}

fn names(path: &Path) -> VecDeque<OsString> {
    path.components().map(|component| component.as_os_str().to_owned()).collect()
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// The deciding names of a path, each as `directory/name` below `root`.
    fn shown(root: &Path, path: &str) -> Vec<String> {
        let step = |step: Step| {
            let path = step.directory.join(step.name);
            path.strip_prefix(root).map_or_else(|_| "outside".to_owned(), |path| path.display().to_string())
        };
        let mut shown: Vec<_> =
            steps(&root.join(path)).expect("it can be walked").into_iter().map(step).collect();
        shown.retain(|step| step != "outside" && !step.is_empty());
        shown
    }

    fn root() -> tempfile::TempDir {
        tempfile::tempdir_in(fs::canonicalize(std::env::temp_dir()).expect("it is there"))
            .expect("a directory")
    }

    #[test]
    fn of_a_plain_file_its_name_and_its_directory_count() {
        let root = root();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        fs::write(root.path().join("a/b/rules.toml"), "").unwrap();
        assert_eq!(shown(root.path(), "a/b/rules.toml"), ["a/b", "a/b/rules.toml"]);
        assert_eq!(shown(root.path(), "a/./x/../b/rules.toml"), ["a/x"], "there is no x to come back from");
        assert_eq!(shown(root.path(), "a/b/../b/rules.toml"), ["a/b", "a/b/rules.toml"]);
    }

    #[test]
    fn each_link_counts_and_what_it_leads_to() {
        let root = root();
        fs::create_dir_all(root.path().join("config/..one")).unwrap();
        fs::write(root.path().join("config/..one/rules.toml"), "").unwrap();
        symlink("..one", root.path().join("config/..data")).unwrap();
        symlink("..data/rules.toml", root.path().join("config/rules.toml")).unwrap();
        let expected =
            ["config", "config/rules.toml", "config/..data", "config/..one", "config/..one/rules.toml"];
        assert_eq!(shown(root.path(), "config/rules.toml"), expected);
    }

    #[test]
    fn a_link_to_an_absolute_path_is_followed() {
        let root = root();
        fs::create_dir_all(root.path().join("there")).unwrap();
        fs::write(root.path().join("there/rules.toml"), "").unwrap();
        symlink(root.path().join("there/rules.toml"), root.path().join("rules.toml")).unwrap();
        assert_eq!(shown(root.path(), "rules.toml"), ["rules.toml", "there", "there/rules.toml"]);
    }

    #[test]
    fn of_a_path_that_leads_nowhere_the_first_that_is_missing_counts() {
        let root = root();
        assert_eq!(shown(root.path(), "a/b/c/rules.toml"), ["a"]);
        symlink("nowhere", root.path().join("rules.toml")).unwrap();
        assert_eq!(shown(root.path(), "rules.toml"), ["rules.toml", "nowhere"]);
    }

    #[test]
    fn links_in_a_circle_are_an_error() {
        let root = root();
        symlink("b", root.path().join("a")).unwrap();
        symlink("a", root.path().join("b")).unwrap();
        assert!(steps(&root.path().join("a")).is_err());
    }
}
