//! The shared case files: one stream each, as a driver would have spoken it.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use bex_proto::sse::{DONE, Event, Splitter};
use bytes::Bytes;

use crate::transcript::{Sort, Transcript, Turn};

/// Every case file, or `None` with a notice where the folder does not exist.
///
/// # Errors
/// In CI, where nothing may be skipped, and when a file cannot be read.
pub fn shared() -> anyhow::Result<Option<Vec<Transcript>>> {
    let found = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|dir| dir.join("shared/ai-sdk/cases"))
        .find(|dir| dir.is_dir());
    let Some(dir) = found else {
        let in_ci = std::env::var("CI").is_ok_and(|v| v == "true");
        ensure!(
            !in_ci,
            "shared/ai-sdk/cases is missing, and in CI nothing is skipped"
        );
        eprintln!("skipped: there is no shared/ai-sdk/cases beside this repository");
        return Ok(None);
    };
    let mut paths: Vec<_> = std::fs::read_dir(&dir)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "sse"))
        .collect();
    paths.sort();
    ensure!(!paths.is_empty(), "no cases in {}", dir.display());
    paths.iter().map(read).collect::<Result<_, _>>().map(Some)
}

fn read(path: &PathBuf) -> anyhow::Result<Transcript> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut splitter = Splitter::new();
    splitter.push(&text);
    let mut turn = Turn::default();
    while let Some(event) = splitter.next_event() {
        match event {
            Event::Data { data, .. } if data == DONE.as_bytes() => {}
            Event::Data { data, .. } => turn.0.push(Some(data)),
            // only its place is of interest
            Event::Oversized { .. } => turn.0.push(Some(Bytes::from_static(b"oversized"))),
        }
    }
    Ok(Transcript {
        name: path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        sort: Sort::Any,
        turns: vec![turn],
    })
}
