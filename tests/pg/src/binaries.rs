//! Where PostgreSQL's programs are and as whom they run.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::unistd::{Gid, Uid, User, geteuid};

use crate::{PgError, io};

/// The directory of `initdb`, `postgres` and `psql`, and the user to run them as when we are root.
#[derive(Debug, Clone)]
pub struct Binaries {
    dir: PathBuf,
    user: Option<(Uid, Gid)>,
}

impl Binaries {
    /// Looks in `BEX_TEST_PG_BIN`, the Debian paths of 15 to 18, then `PATH`.
    ///
    /// # Errors
    /// [`PgError::NotInstalled`], or [`PgError::NoUser`] as root without a user to drop to.
    pub fn find() -> Result<Self, PgError> {
        let given = std::env::var_os("BEX_TEST_PG_BIN").map(PathBuf::from);
        let debian =
            (15..=18).map(|version| PathBuf::from(format!("/usr/lib/postgresql/{version}/bin")));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dir = given
            .into_iter()
            .chain(debian)
            .chain(std::env::split_paths(&path))
            .find(|dir| {
                ["initdb", "postgres", "psql"]
                    .iter()
                    .all(|program| dir.join(program).is_file())
            })
            .ok_or(PgError::NotInstalled)?;
        Ok(Self {
            dir,
            user: unprivileged_user()?,
        })
    }

    /// The directory that holds them, for `pgbench` and friends.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A command that runs `program` as the unprivileged user, in a directory that user can read.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir("/")
            .env_remove("PGDATA")
            .env_remove("PGHOST")
            .env_remove("PGUSER")
            .env("LC_ALL", "C");
        if let Some((uid, gid)) = self.user {
            command.uid(uid.as_raw()).gid(gid.as_raw());
        }
        command
    }

    /// The full path of one program.
    pub fn program(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Gives `path` to the unprivileged user.
    pub(crate) fn hand_over(&self, path: &Path) -> Result<(), PgError> {
        let Some((uid, gid)) = self.user else {
            return Ok(());
        };
        std::os::unix::fs::chown(path, Some(uid.as_raw()), Some(gid.as_raw())).map_err(io(
            "cannot give the data directory to the unprivileged user",
        ))
    }
}

fn unprivileged_user() -> Result<Option<(Uid, Gid)>, PgError> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    ["postgres", "nobody"]
        .iter()
        .find_map(|name| User::from_name(name).ok().flatten())
        .map(|user| Some((user.uid, user.gid)))
        .ok_or(PgError::NoUser)
}
