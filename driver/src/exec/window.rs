//! A window of a turn's log, cut at its last newline, with the status where asked for.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use bex_proto::driver::{DriverState, LEGACY_LOG_FILE, LogRecord, STATUS_FILE, Status, log_file};
use bex_proto::exec::{FrameKind, LogWindow, WindowEnding, WindowHeader};
use bex_proto::ids::{Generation, TurnNo};
use bex_proto::limits;
use nix::fcntl::OFlag;
use sha2::{Digest, Sha256};

use super::ExecFault;
use super::output::Output;
use crate::bounds::FIRST_LINE_BYTES;

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// For `observe`.
    StatusAndLog,
    /// For `read-transcript`.
    Log,
}

/// Writes header and bytes.
///
/// # Errors
/// When files cannot be read (a missing one is no error) or nobody reads the answer.
pub fn answer(
    dir: &Path,
    turn: TurnNo,
    offset: u64,
    asked: Asked,
    output: &mut Output,
) -> Result<(), ExecFault> {
    // the status is read first: a log that is read after "not running" is whole
    let status = read_status(dir).map_err(ExecFault::Files)?;
    let log = Log::open(dir, turn).map_err(ExecFault::Files)?;
    let window = match log {
        Some(log) => {
            let is_over = status.as_deref().is_some_and(|s| log.is_over(s, turn));
            Some(log.read(offset, is_over).map_err(ExecFault::Files)?)
        }
        None => None,
    };
    let (log, bytes) = match window {
        Some((window, bytes)) => (Some(window), bytes),
        None => (None, Vec::new()),
    };
    let header = WindowHeader {
        status: status.filter(|_| asked == Asked::StatusAndLog),
        log,
    };
    output
        .json(FrameKind::Header, &header)
        .and_then(|()| output.bytes(FrameKind::Stdout, &bytes))
        .map_err(ExecFault::Output)
}

/// The status file's text. Nothing when it is not there or not what a driver writes: no file, too long, or not text.
fn read_status(dir: &Path) -> io::Result<Option<String>> {
    let Some(file) = open_if_there(&dir.join(STATUS_FILE))? else {
        return Ok(None);
    };
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut text = Vec::new();
    file.take(limits::STATUS_BYTES as u64 + 1)
        .read_to_end(&mut text)?;
    Ok(String::from_utf8(text)
        .ok()
        .filter(|text| text.len() <= limits::STATUS_BYTES))
}

/// An open log that says whose it is.
struct Log {
    file: File,
    /// `None` in the old form.
    generation: Option<Generation>,
    log_id: String,
    size: u64,
}

impl Log {
    /// The turn's log, or the one log of a driver of the old form; `None` while there is none that says whose it is.
    fn open(dir: &Path, turn: TurnNo) -> io::Result<Option<Self>> {
        if let Some(file) = open_if_there(&dir.join(log_file(turn)))? {
            let size = metadata_of_a_file(&file)?.len();
            return Ok(first_line(&file)?.map(|(generation, log_id)| Self {
                file,
                generation: Some(generation),
                log_id,
                size,
            }));
        }
        let Some(file) = open_if_there(&dir.join(LEGACY_LOG_FILE))? else {
            return Ok(None);
        };
        let metadata = metadata_of_a_file(&file)?;
        Ok(Some(Self {
            file,
            generation: None,
            log_id: format!("{}-{}", metadata.dev(), metadata.ino()),
            size: metadata.len(),
        }))
    }

    /// Whether nothing will be added, as far as a status says. A status of an earlier turn says nothing about this one.
    fn is_over(&self, status: &str, turn: TurnNo) -> bool {
        let Ok(status) = serde_json::from_str::<Status>(status) else {
            return false;
        };
        let running = status.state == DriverState::Running;
        match (self.generation, status.turn) {
            (None, _) => !running,
            (Some(_), Some(last)) => last > turn || (last == turn && !running),
            (Some(_), None) => false,
        }
    }

    fn read(mut self, offset: u64, is_over: bool) -> io::Result<(LogWindow, Vec<u8>)> {
        let wanted = self.size.saturating_sub(offset).min(limits::HARVEST_BYTES);
        let mut bytes = Vec::with_capacity(usize::try_from(wanted).map_err(io::Error::other)?);
        self.file.seek(SeekFrom::Start(offset))?;
        (&mut self.file).take(wanted).read_to_end(&mut bytes)?;
        let reaches_end = offset + bytes.len() as u64 >= self.size;
        let (keep, ending) = cut(&bytes, is_over && reaches_end);
        bytes.truncate(keep);
        let window = LogWindow {
            generation: self.generation,
            log_id: self.log_id,
            offset,
            length: bytes.len() as u64,
            size: self.size,
            sha256: hex::encode(Sha256::digest(&bytes)),
            ending,
        };
        if ending == WindowEnding::LineTooLong {
            bytes.clear();
        }
        Ok((window, bytes))
    }
}

/// How many bytes of a window are given, and how it ends.
fn cut(bytes: &[u8], is_final: bool) -> (usize, WindowEnding) {
    match memchr::memrchr(b'\n', bytes) {
        Some(newline) if newline + 1 == bytes.len() => (bytes.len(), WindowEnding::Line),
        _ if is_final && !bytes.is_empty() => (bytes.len(), WindowEnding::Unterminated),
        Some(newline) => (newline + 1, WindowEnding::Line),
        None if bytes.len() as u64 == limits::HARVEST_BYTES => {
            (bytes.len(), WindowEnding::LineTooLong)
        }
        None => (0, WindowEnding::Line),
    }
}

/// Never waits: whoever put a pipe in a file's place would hold whoever opens it.
fn open_if_there(path: &Path) -> io::Result<Option<File>> {
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path);
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(cause),
    }
}

/// A log can be read anew, which nothing but a file can.
fn metadata_of_a_file(file: &File) -> io::Result<std::fs::Metadata> {
    let metadata = file.metadata()?;
    if metadata.is_file() {
        Ok(metadata)
    } else {
        Err(io::Error::other("the log is no file"))
    }
}

fn first_line(file: &File) -> io::Result<Option<(Generation, String)>> {
    let mut head = [0; FIRST_LINE_BYTES];
    let mut length = 0;
    while length < head.len() {
        match file.read_at(&mut head[length..], length as u64)? {
            0 => break,
            more => length += more,
        }
    }
    let line = memchr::memchr(b'\n', &head[..length]).map(|end| &head[..end]);
    Ok(match line.and_then(LogRecord::parse) {
        Some(LogRecord::Log {
            generation, log_id, ..
        }) => Some((generation, log_id)),
        _ => None,
    })
}
