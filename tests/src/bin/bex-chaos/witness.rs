//! What was spoken, from those who spoke: the drivers' logs, kept over the end of their sandboxes by a second name of the same
//! file, and the text that the agents themselves kept.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use bex_proto::driver::{LogRecord, TurnEnd, log_file};
use bex_proto::launch::{DRIVER_DIR, pod_of};
use bex_proto::{Generation, SessionId, TurnNo};
use bytes::Bytes;

const DRIVER_STDERR: &str = "driver.stderr";

/// What one sandbox life spoke of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spoken {
    pub generation: Generation,
    /// From index 0 on, without those that the disk did not take.
    pub parts: Vec<Bytes>,
    /// The first part that is not in the log.
    pub dropped: Option<u32>,
    pub end: Option<TurnEnd>,
}

/// Keeps logs.
pub struct Witness {
    sandboxes: PathBuf,
    kept: PathBuf,
    seen: BTreeSet<PathBuf>,
}

impl Witness {
    /// `kept` is made; it must be on the file system of the sandboxes.
    pub fn new(sandboxes: &Path, kept: PathBuf) -> anyhow::Result<Self> {
        std::fs::create_dir_all(&kept)?;
        Ok(Self {
            sandboxes: sandboxes.to_owned(),
            kept,
            seen: BTreeSet::new(),
        })
    }

    /// Gives a second name to every log that is new.
    pub fn look(&mut self) {
        for pod in list(&self.sandboxes) {
            let name = pod.file_name().unwrap_or_default().to_owned();
            for log in list(&pod.join(DRIVER_DIR)) {
                let file = log.file_name().unwrap_or_default().to_owned();
                let text = file.to_string_lossy();
                let wanted = text.starts_with("session-") || text == DRIVER_STDERR;
                if !wanted || self.seen.contains(&log) {
                    continue;
                }
                let kept = self.kept.join(&name);
                // a sandbox may be removed just now; then its log was looked at before
                if std::fs::create_dir_all(&kept).is_ok()
                    && std::fs::hard_link(&log, kept.join(&file)).is_ok()
                {
                    self.seen.insert(log);
                }
            }
        }
    }

    /// What every life of a session spoke of a turn.
    pub fn spoken(&self, session: &SessionId, turn: TurnNo, lives: u32) -> Vec<Spoken> {
        let lives = (1..=lives).map(Generation);
        let read = |generation| {
            let dir = self.kept.join(pod_of(session, generation));
            let log = std::fs::read(dir.join(log_file(turn))).ok()?;
            Some(parse(generation, &log))
        };
        lives.filter_map(read).collect()
    }

    /// The drivers' own words.
    pub fn driver_logs(&self) -> Vec<PathBuf> {
        let pods = list(&self.kept);
        pods.iter()
            .map(|pod| pod.join(DRIVER_STDERR))
            .filter(|log| log.is_file())
            .collect()
    }
}

pub fn list(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn parse(generation: Generation, log: &[u8]) -> Spoken {
    let mut spoken = Spoken {
        generation,
        parts: Vec::new(),
        dropped: None,
        end: None,
    };
    for line in log
        .split_inclusive(|b| *b == b'\n')
        .filter(|line| line.ends_with(b"\n"))
    {
        match LogRecord::parse(line) {
            Some(LogRecord::UiMessage { part, .. }) => {
                spoken.parts.push(Bytes::copy_from_slice(part.as_bytes()));
            }
            Some(LogRecord::Dropped { first, .. }) => spoken.dropped = Some(first.0),
            Some(LogRecord::TurnEnd(end)) => {
                spoken.dropped = spoken
                    .dropped
                    .or(end.dropped.map(|dropped| dropped.first.0));
                spoken.end = Some(end);
            }
            Some(LogRecord::Log { .. }) | None => {}
        }
    }
    spoken
}
