//! Recorded UI message streams: the data lines of an SSE file, and where the shared collection of them is.

use std::path::{Path, PathBuf};

use anyhow::Context;
use bytes::Bytes;

/// A recorded stream.
#[derive(Debug, Clone)]
pub struct Recording {
    /// The file.
    pub path: PathBuf,
    /// The data of its events in order, without `[DONE]`.
    pub parts: Vec<Bytes>,
}

impl Recording {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text =
            std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let text = Bytes::from(text);
        let parts = text
            .split(|b| *b == b'\n')
            .filter_map(|line| line.strip_prefix(b"data: "))
            .map(|data| data.strip_suffix(b"\r").unwrap_or(data))
            .filter(|data| *data != bex_proto::sse::DONE.as_bytes())
            .map(|data| text.slice_ref(data));
        Ok(Self {
            path: path.to_owned(),
            parts: parts.collect(),
        })
    }

    /// The file's name.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

/// The shared recordings: `shared/data/ui-streams` in any parent of this crate.
pub fn shared_dir() -> Option<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|dir| dir.join("shared/data/ui-streams"))
        .find(|dir| dir.is_dir())
}

/// Every shared recording by name, or `None` with a notice where the folder does not exist.
///
/// # Panics
/// In CI, where nothing may be skipped, and when a file cannot be read.
#[expect(clippy::print_stderr, reason = "a skip must be seen")]
pub fn shared() -> Option<Vec<Recording>> {
    let Some(dir) = shared_dir() else {
        let in_ci = std::env::var("CI").is_ok_and(|v| v == "true");
        assert!(
            !in_ci,
            "shared/data/ui-streams is missing, and in CI nothing is skipped"
        );
        eprintln!("skipped: there is no shared/data/ui-streams beside this repository");
        return None;
    };
    let mut paths: Vec<_> = std::fs::read_dir(&dir)
        .expect("a directory that was just seen can be listed")
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "sse"))
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "no recordings in {}", dir.display());
    let read = |path: &PathBuf| Recording::read(path).expect("a shared recording can be read");
    Some(paths.iter().map(read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_the_data_lines_byte_for_byte() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.sse");
        let text = "data: {\"type\":\"start\"}\n\n: c\n\ndata: {\"type\":\"text-delta\",\"delta\":\"data: é\"}\r\n\r\ndata: [DONE]\n\n";
        std::fs::write(&file, text).unwrap();
        let recording = Recording::read(&file).unwrap();
        assert_eq!(recording.parts.len(), 2);
        assert_eq!(
            recording.parts[1],
            "{\"type\":\"text-delta\",\"delta\":\"data: é\"}".as_bytes()
        );
    }
}
