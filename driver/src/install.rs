//! Puts this very program into a directory: an init container shares it with the sandbox's container, whose image then needs no driver.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;

/// What it is called there.
const NAME: &str = "bex-driver";
/// Everybody may run it and nobody change it.
const MODE: u32 = 0o555;

/// The program's `install`.
pub fn main(dir: &Path) -> ExitCode {
    match install(dir) {
        Ok(bytes) => {
            tracing::info!(bytes, "installed");
            ExitCode::SUCCESS
        }
        Err(error) => {
            tracing::error!(%error, "the driver could not be installed");
            ExitCode::FAILURE
        }
    }
}

/// Under its name only when it is whole: whoever starts it never meets a half.
fn install(dir: &Path) -> io::Result<u64> {
    let part = dir.join(format!(".{NAME}.part"));
    let mut from = File::open("/proc/self/exe")?;
    let mut to = File::create(&part)?;
    let bytes = io::copy(&mut from, &mut to)?;
    to.set_permissions(Permissions::from_mode(MODE))?;
    to.sync_all()?;
    fs::rename(&part, dir.join(NAME))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_same_program_and_may_be_repeated() {
        let dir = tempfile::tempdir().expect("a directory");
        let own = fs::read("/proc/self/exe").expect("a program");
        for _ in 0..2 {
            assert_eq!(install(dir.path()).expect("installed"), own.len() as u64);
            let installed = dir.path().join(NAME);
            assert!(fs::read(&installed).expect("there") == own);
            let mode = fs::metadata(&installed)
                .expect("there")
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, MODE);
            assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 1);
        }
        assert!(install(&dir.path().join("nowhere")).is_err());
    }
}
