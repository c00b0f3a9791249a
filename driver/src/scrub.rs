//! Credential files are overwritten in place before a turn ends.
//!
//! The files are the agent's, in its directory, so whatever stands at their paths was put there by it: a child that is the agent's user
//! opens them, and reaches nothing that the agent could not. It follows no link and waits for no pipe. A file that cannot be
//! overwritten is told in the log and keeps no turn from its end.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::process::{ExitCode, Stdio};

use bex_proto::chain::Chain;
use bex_proto::launch::{Isolation, is_credential_file};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::Mode;
use tokio::process::Command;
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::bounds::{SCRUB_BYTES, SCRUB_TIMEOUT};
use crate::profile::Profile;

/// This very program, wherever it lies.
const SELF: &str = "/proc/self/exe";
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];
const OWNER_WRITES: u32 = 0o200;

/// Why a file is as it was.
#[derive(Debug, thiserror::Error)]
enum ScrubFault {
    /// Not a path within the directory.
    #[error("the path leads elsewhere")]
    Path,
    /// A link, a pipe, a directory.
    #[error("it is no file")]
    NotAFile,
    /// The system says no.
    #[error("it cannot be overwritten")]
    Io(#[from] io::Error),
}

/// Overwrites the credential files of a profile, within [`SCRUB_TIMEOUT`]. What fails is logged.
pub async fn run(profile: &Profile) {
    let files = profile.agent.credential_files();
    if files.is_empty() {
        return;
    }
    let surroundings = &profile.surroundings;
    let mut command = Command::new(SELF);
    command
        .args(["scrub", "--"])
        .args(files)
        .env_clear()
        .current_dir(&surroundings.workdir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        // its complaints stand in the driver's log
        .stderr(Stdio::inherit())
        .kill_on_drop(true);
    if let Isolation::User { uid, gid } = surroundings.isolation {
        command.uid(uid).gid(gid);
    }
    let ended = async { command.spawn()?.wait().await };
    match timeout(SCRUB_TIMEOUT, ended).await {
        Ok(Ok(status)) if status.success() => {}
        Ok(Ok(status)) => warn!(%status, "not every credential file is overwritten"),
        Ok(Err(cause)) => warn!(error = %cause, "credential files are not overwritten"),
        Err(_) => warn!("credential files are not overwritten in time"),
    }
}

/// The program's `scrub`: overwrites these files of its directory.
pub fn main(files: &[String]) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for file in files {
        match overwrite(file) {
            Ok(bytes) => debug!(file, bytes, "credential file is overwritten"),
            Err(ScrubFault::Io(cause)) if cause.kind() == io::ErrorKind::NotFound => {
                debug!(file, "there is no such credential file");
            }
            Err(fault) => {
                warn!(file, error = %Chain(&fault), "a credential file is not overwritten");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

/// Zeros in the place of its bytes, then no bytes. Gives how many there were.
fn overwrite(path: &str) -> Result<u64, ScrubFault> {
    let mut file = open(path)?;
    let length = file.metadata()?.len();
    let zeroed = zero(&mut file, length.min(SCRUB_BYTES));
    // whatever became of that
    file.set_len(0)?;
    zeroed?;
    Ok(length)
}

fn zero(file: &mut File, mut left: u64) -> io::Result<()> {
    while left > 0 {
        let step = left.min(ZEROS.len() as u64);
        file.write_all(&ZEROS[..step as usize])?;
        left -= step;
    }
    // else the cut would be all that the disk ever sees
    file.sync_data()
}

/// Opens a file to write to it, link by link none.
fn open(path: &str) -> Result<File, ScrubFault> {
    if !is_credential_file(path) {
        return Err(ScrubFault::Path);
    }
    let (dirs, name) = match path.rsplit_once('/') {
        Some((dirs, name)) => (Some(dirs), name),
        None => (None, path),
    };
    let mut dir = openat(
        AT_FDCWD,
        ".",
        OFlag::O_PATH | OFlag::O_CLOEXEC,
        Mode::empty(),
    );
    for step in dirs.into_iter().flat_map(|dirs| dirs.split('/')) {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        dir = openat(dir.map_err(fault)?, step, flags, Mode::empty());
    }
    let dir = dir.map_err(fault)?;
    // a pipe must not be waited for
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    let to = |access| openat(&dir, name, flags | access, Mode::empty()).map(File::from);
    let writable = match to(OFlag::O_WRONLY) {
        Err(Errno::EACCES) => {
            // a file that even its owner only reads
            let file = regular(to(OFlag::O_RDONLY).map_err(fault)?)?;
            let mode = file.metadata()?.permissions().mode();
            file.set_permissions(Permissions::from_mode(mode | OWNER_WRITES))?;
            to(OFlag::O_WRONLY)
        }
        other => other,
    };
    regular(writable.map_err(fault)?)
}

fn regular(file: File) -> Result<File, ScrubFault> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(ScrubFault::NotAFile),
    }
}

fn fault(errno: Errno) -> ScrubFault {
    match errno {
        // a link; a link or file on the way; a directory; a pipe that nobody reads
        Errno::ELOOP | Errno::ENOTDIR | Errno::EISDIR | Errno::ENXIO => ScrubFault::NotAFile,
        other => ScrubFault::Io(other.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_themselves_are_overwritten() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("credential");
        let length = ZEROS.len() + 7;
        std::fs::write(&path, vec![b's'; length]).expect("a file");
        let mut file = File::options().write(true).open(&path).expect("a file");
        zero(&mut file, length as u64).expect("overwritten");
        assert!(std::fs::read(&path).expect("a file") == vec![0; length]);
    }
}
