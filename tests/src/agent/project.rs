//! The agent's files: a small project that it makes, reads and edits.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// The file that every turn edits.
pub(super) const NOTES: &str = "notes.md";
const FILES: [(&str, &str); 3] = [
    (
        "README.md",
        "# Sample\n\nA small project that the demo agent made.\n",
    ),
    ("main.sh", "#!/bin/sh\necho \"hello from the sample\"\n"),
    (NOTES, "# Notes\n\n- made the project\n"),
];

/// Makes the project unless it is there; returns the names it wrote.
pub(super) fn set_up(dir: &Path) -> io::Result<Vec<&'static str>> {
    let mut written = Vec::new();
    for (name, text) in FILES {
        let path = dir.join(name);
        if !path.exists() {
            fs::write(path, text)?;
            written.push(name);
        }
    }
    Ok(written)
}

/// The project's own files that exist, with their sizes; whatever else lies there (a gate) is not talked about.
pub(super) fn list(dir: &Path) -> io::Result<Vec<(&'static str, u64)>> {
    let mut found = Vec::new();
    for (name, _) in FILES {
        found.push((name, fs::metadata(dir.join(name))?.len()));
    }
    Ok(found)
}

/// An edit that was made.
pub(super) struct Edit {
    /// The file.
    pub(super) path: PathBuf,
    /// Its text before.
    pub(super) before: String,
    /// Its text now.
    pub(super) after: String,
}

/// Adds one line to the notes.
pub(super) fn note(dir: &Path, line: &str) -> io::Result<Edit> {
    let path = dir.join(NOTES);
    let before = fs::read_to_string(&path)?;
    let after = format!("{before}- {line}\n");
    fs::write(&path, &after)?;
    Ok(Edit {
        path,
        before,
        after,
    })
}
