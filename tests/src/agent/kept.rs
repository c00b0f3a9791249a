//! Conversations that outlive their agent: what was asked in each, one line a turn, in a directory that is nobody's sandbox. An agent
//! that has one can load its sessions.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::orders::is_plain;

/// Where they are kept, if anywhere.
#[derive(Clone, Default)]
pub(super) struct Kept(Option<Arc<Path>>);

impl Kept {
    pub(super) fn new(dir: Option<PathBuf>) -> Self {
        Self(dir.map(Arc::from))
    }

    pub(super) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// What was asked in a conversation so far; `None` for one that is not kept.
    pub(super) fn asked(&self, id: &str) -> Option<Vec<String>> {
        let text = std::fs::read_to_string(self.path(id)?).ok()?;
        Some(text.lines().map(str::to_owned).collect())
    }

    /// Keeps one more line.
    pub(super) fn keep(&self, id: &str, line: &str) -> io::Result<()> {
        let Some(path) = self.path(id) else {
            return Ok(());
        };
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        writeln!(file, "{line}")
    }

    fn path(&self, id: &str) -> Option<PathBuf> {
        let dir = self.0.as_ref().filter(|_| is_plain(id))?;
        Some(dir.join(id))
    }
}

/// As an agent is told of turns that it did not speak itself.
pub(super) fn told(asked: &[String]) -> String {
    let turns = asked.iter().enumerate();
    turns
        .map(|(at, line)| format!("Turn {}, asked:\n{line}\n", at + 1))
        .collect()
}
