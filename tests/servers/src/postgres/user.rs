//! The user that PostgreSQL runs as: it refuses to run as root.

use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    process::Command,
};

use rustix::process::geteuid;

use crate::{Error, Result, scratch::Scratch};

/// A user other than that of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct User {
    uid: u32,
    gid: u32,
}

impl User {
    /// The user that runs it; `None` if the current user can.
    pub(super) fn unprivileged() -> Result<Option<Self>> {
        if !geteuid().is_root() {
            return Ok(None);
        }
        let users = fs::read_to_string("/etc/passwd")?;
        let found = ["postgres", "nobody"].iter().find_map(|name| find(&users, name));
        found
            .map(Some)
            .ok_or_else(|| Error::new("PostgreSQL refuses to run as root, and there is no user `nobody`"))
    }

    /// Gives the user access to a directory of this process.
    pub(super) fn own(self, scratch: &Scratch) -> Result<()> {
        chown(scratch.path(), Some(self.uid), Some(self.gid))?;
        if let Some(parent) = scratch.path().parent() {
            // It can be traversed, but not listed.
            fs::set_permissions(parent, fs::Permissions::from_mode(0o711))?;
        }
        Ok(())
    }

    pub(super) fn run(self, command: &mut Command) {
        command.uid(self.uid).gid(self.gid);
    }
}

/// The user with this name, from a line such as `nobody:x:65534:65534:…`.
fn find(users: &str, name: &str) -> Option<User> {
    let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let line = fields.into_iter().find(|fields| fields.first() == Some(&name))?;
    Some(User { uid: line.get(2)?.parse().ok()?, gid: line.get(3)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_their_names() {
        let users = "root:x:0:0:root:/root:/bin/sh\npostgres:x:101:104:,,,:/var/lib/postgresql:/bin/bash\n";
        assert_eq!(find(users, "postgres"), Some(User { uid: 101, gid: 104 }));
        assert_eq!(find(users, "post"), None);
    }
}
