//! What an earlier life of this process left: turns to serve from their logs, and at most one that it did not end.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use bex_proto::driver::{
    Dropped, LEGACY_LOG_FILE, LogRecord, STATUS_FILE, TurnDigest, TurnEnd, TurnState, log_record,
    turn_end_record,
};
use bex_proto::ids::{Generation, TurnNo, random_id};
use bex_proto::limits;
use jiff::Timestamp;
use tracing::warn;

use crate::profile::Profile;
use crate::sink::Tail;

/// What was found.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Turns with a log.
    pub spoken: BTreeMap<TurnNo, Arc<Tail>>,
    /// Whether this process had an earlier life.
    pub restarted: bool,
    /// Why no more turns can be taken.
    pub refuses: Option<&'static str>,
    /// For the status.
    pub error: Option<String>,
}

/// Whether an earlier life of this process left a turn without its end.
///
/// # Errors
/// When directory or logs cannot be read.
pub fn was_speaking(profile: &Profile) -> io::Result<bool> {
    if profile.legacy.is_some() {
        return Ok(profile.dir.join(LEGACY_LOG_FILE).exists());
    }
    for entry in std::fs::read_dir(&profile.dir)? {
        let path = entry?.path();
        if turn_of(&path).is_some() && ended_parts(&path)?.is_none() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Looks at the driver's directory and ends what was not ended.
///
/// # Errors
/// When directory or logs cannot be read or a log cannot be ended: nothing true could be said about its turn.
pub fn recover(profile: &Profile) -> io::Result<Recovered> {
    let mut found = Recovered {
        restarted: profile.dir.join(STATUS_FILE).exists(),
        ..Recovered::default()
    };
    if let Some(legacy) = &profile.legacy {
        let path = profile.dir.join(LEGACY_LOG_FILE);
        if path.exists() {
            let scan = scan(&path)?;
            found
                .spoken
                .insert(legacy.turn, Arc::new(Tail::ended(path, scan.next_index)));
            found.refuses = Some("the driver was restarted");
            found.error = found.refuses.map(str::to_owned);
        }
        return Ok(found);
    }
    for entry in std::fs::read_dir(&profile.dir)? {
        let path = entry?.path();
        let Some(turn) = turn_of(&path) else { continue };
        found.restarted = true;
        let parts = match ended_parts(&path)? {
            Some(parts) => parts,
            None => {
                warn!(%turn, "turn was not ended by an earlier life of this driver");
                found.error = Some("the driver was restarted while the turn ran".to_owned());
                end(&path, turn, profile.generation)?
            }
        };
        found
            .spoken
            .insert(turn, Arc::new(Tail::ended(path, parts)));
    }
    Ok(found)
}

/// The turn of a log's name, `session-<turn>.jsonl`.
fn turn_of(path: &Path) -> Option<TurnNo> {
    let name = path.file_name()?.to_str()?;
    let turn = name.strip_prefix("session-")?.strip_suffix(".jsonl")?;
    turn.parse().ok().map(TurnNo)
}

/// The number of parts that a log's last line declares.
fn ended_parts(path: &Path) -> io::Result<Option<u32>> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(
        size.saturating_sub(limits::TURN_LOG_RESERVE),
    ))?;
    let mut end = Vec::new();
    file.read_to_end(&mut end)?;
    let last = end
        .strip_suffix(b"\n")
        .and_then(|lines| lines.rsplit(|b| *b == b'\n').next());
    Ok(match last.and_then(LogRecord::parse) {
        Some(LogRecord::TurnEnd(end)) => Some(end.parts),
        _ => None,
    })
}

/// A log that is read whole.
#[derive(Default)]
struct Scan {
    has_first_line: bool,
    parts: u32,
    next_index: u32,
    bytes: u64,
    digest: TurnDigest,
    dropped: Option<Dropped>,
    /// Up to the last newline.
    size: u64,
}

fn scan(path: &Path) -> io::Result<Scan> {
    let mut lines = BufReader::new(File::open(path)?);
    let (mut scan, mut line) = (Scan::default(), Vec::new());
    loop {
        line.clear();
        let length = lines.read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\n") {
            return Ok(scan);
        }
        scan.size += length as u64;
        match LogRecord::parse(&line) {
            Some(LogRecord::Log { .. }) => scan.has_first_line = true,
            Some(LogRecord::UiMessage {
                part, part_index, ..
            }) => {
                scan.parts += 1;
                scan.next_index = part_index.map_or(scan.parts, |index| index.0 + 1);
                scan.bytes += part.len() as u64;
                scan.digest.add(part.as_bytes());
            }
            // one part at least is not here; how many were said after it died with the process
            Some(LogRecord::Dropped { first, .. }) => {
                scan.dropped = Some(Dropped {
                    first,
                    last: first,
                    count: 1,
                    bytes: 0,
                });
            }
            Some(LogRecord::TurnEnd(_)) | None => {}
        }
    }
}

/// Ends a log: a torn last line, which nobody was shown, goes; the turn failed with what is in the log.
fn end(path: &Path, turn: TurnNo, generation: Generation) -> io::Result<u32> {
    let scan = scan(path)?;
    let mut file = OpenOptions::new().append(true).open(path)?;
    file.set_len(scan.size)?;
    if !scan.has_first_line {
        file.set_len(0)?;
        file.write_all(log_record(generation, &random_id("log"), turn).as_bytes())?;
    }
    let end = TurnEnd {
        turn,
        parts: scan.parts,
        bytes: scan.bytes,
        sha256: scan.digest.hex(),
        state: TurnState::Failed,
        dropped: scan.dropped,
    };
    file.write_all(turn_end_record(Timestamp::now(), &end).as_bytes())?;
    Ok(scan.parts)
}
