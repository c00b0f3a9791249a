//! Files of the driver: readable by the driver alone, and never seen half-written.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

const OWNER_ONLY: u32 = 0o600;
const OWNER_ONLY_DIR: u32 = 0o700;

/// Closes the driver's directory to everybody else: a cluster's volumes begin open to all.
///
/// # Errors
/// What the file system says, e.g. that the directory is another user's.
pub fn close(dir: &Path) -> io::Result<()> {
    std::fs::set_permissions(dir, Permissions::from_mode(OWNER_ONLY_DIR))
}

/// Replaces a file's content: written beside it, then renamed over it. One writer per path.
///
/// # Errors
/// What the file system says; the old content is then still there.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("tmp");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(OWNER_ONLY)
        .open(&beside)?;
    file.write_all(content)?;
    drop(file);
    std::fs::rename(&beside, path)
}

/// A new file to append to.
///
/// # Errors
/// When it is there already, or what the file system says.
pub fn create_log(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create_new(true)
        .mode(OWNER_ONLY)
        .open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_was_open_to_all_is_closed() {
        let dir = tempfile::tempdir().expect("a directory");
        let mode = || dir.path().metadata().expect("there").permissions().mode() & 0o777;
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).expect("set");
        assert_eq!(mode(), 0o777);
        close(dir.path()).expect("closed");
        assert_eq!(mode(), OWNER_ONLY_DIR);
    }
}
