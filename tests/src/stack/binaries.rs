//! Where the programs of the workspace are.

use std::path::PathBuf;

use anyhow::{Context, ensure};

/// `BEX_BIN_DIR`, else where the running program itself was built to.
///
/// # Errors
/// When the running program's own path is not known.
pub fn bin_dir() -> anyhow::Result<PathBuf> {
    if let Some(dir) = std::env::var_os("BEX_BIN_DIR") {
        return Ok(PathBuf::from(dir));
    }
    let me = std::env::current_exe().context("no path of the running program")?;
    let dir = me.parent().context("a program lies in a directory")?;
    // test programs lie one level deeper
    let dir = if dir.ends_with("deps") {
        dir.parent()
    } else {
        Some(dir)
    };
    Ok(dir.context("target directories are nested")?.to_owned())
}

/// The full path of one of our programs.
pub(super) fn program(name: &str) -> anyhow::Result<PathBuf> {
    let path = bin_dir()?.join(name);
    ensure!(
        path.is_file(),
        "{} is not built; run `cargo build --workspace --bins`",
        path.display()
    );
    Ok(path)
}
