//! Finds PostgreSQL's programs.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{Error, Result};

/// Where Debian and its derivatives keep them, with a directory for each version.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The directory with the programs: that of `POSTGRES_BIN`, or one where systems put them.
pub(super) fn directory() -> Result<PathBuf> {
    if let Some(set) = env::var_os("POSTGRES_BIN").filter(|set| !set.is_empty()) {
        let directory = PathBuf::from(set);
        return if has_server(&directory) {
            Ok(directory)
        } else {
            Err(Error::new(format!(
                "POSTGRES_BIN is {}, which does not have `initdb`, `pg_isready`, `postgres` and `psql`",
                directory.display()
            )))
        };
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let candidates = env::split_paths(&path).chain(debian()).chain(told());
    candidates.into_iter().find(|directory| has_server(directory)).ok_or_else(|| {
        Error::new(
            "there is no PostgreSQL server. These tests need one of version 11 or later: install the package \
             postgresql of your system (`./scripts/test` does), or set POSTGRES_BIN to the directory that has \
             `initdb` and `postgres`",
        )
    })
}

fn has_server(directory: &Path) -> bool {
    ["initdb", "pg_isready", "postgres", "psql"].iter().all(|name| directory.join(name).is_file())
}

/// The newest version first.
fn debian() -> Vec<PathBuf> {
    let version = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let entries = fs::read_dir(DEBIAN).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut versions: Vec<_> = entries.filter(|path| version(path).is_some()).collect();
    versions.sort_by_key(version);
    versions.into_iter().rev().map(|path| path.join("bin")).collect()
}

/// The directory that the installation itself reports.
fn told() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").output().ok()?;
    Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()))
}
