//! `bex-driver exec`

use std::path::Path;
use std::process::ExitCode;

/// placeholder
pub fn main(_: &Path) -> ExitCode {
    ExitCode::FAILURE
}
