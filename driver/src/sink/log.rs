//! The log of one turn.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use bex_proto::driver::{
    Dropped, TurnEnd, dropped_record, log_record, turn_end_record, write_part_record,
};
use bex_proto::ids::{Generation, PartIndex, TurnNo, random_id};
use bex_proto::limits;
use jiff::Timestamp;
use tracing::{error, warn};

use crate::files;

/// Which contract a log follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogForm {
    /// First line, parts, perhaps `dropped`, turn-end.
    Numbered(Generation),
    /// Parts only; one that does not fit is left out and a later, smaller one may still fit.
    Old,
}

/// A log being written. Never longer than [`limits::TURN_LOG_BYTES`].
#[derive(Debug)]
pub struct TurnLog {
    file: File,
    size: u64,
    form: LogForm,
    dropped: Option<Dropped>,
    record: Vec<u8>,
}

impl TurnLog {
    /// Begins a turn's log with its first line.
    ///
    /// # Errors
    /// When the log is there already or cannot be written.
    pub fn begin(path: &Path, form: LogForm, turn: TurnNo) -> io::Result<Self> {
        let mut log = Self {
            file: files::create_log(path)?,
            size: 0,
            form,
            dropped: None,
            record: Vec::new(),
        };
        if let LogForm::Numbered(generation) = form {
            log.append(log_record(generation, &random_id("log"), turn).as_bytes())?;
        }
        Ok(log)
    }

    /// Keeps a part, or drops it when the log is full or cannot be written.
    pub fn part(&mut self, turn: TurnNo, index: PartIndex, part: &[u8]) {
        if self.dropped.is_some() && self.form != LogForm::Old {
            self.drop_part(index, part.len());
            return;
        }
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        write_part_record(&mut record, Timestamp::now(), turn, index, part);
        let reserve = match self.form {
            LogForm::Numbered(_) => limits::TURN_LOG_RESERVE,
            LogForm::Old => 0,
        };
        let fits = self.size + record.len() as u64 <= limits::TURN_LOG_BYTES - reserve;
        let kept = fits
            && self
                .append(&record)
                .inspect_err(|cause| error!(%turn, %index, error = %cause, "log cannot be written"))
                .is_ok();
        self.record = record;
        if kept {
            return;
        }
        self.drop_part(index, part.len());
        if let LogForm::Numbered(_) = self.form {
            warn!(%turn, first = %index, "log takes no more parts");
            if let Err(cause) = self.append(dropped_record(turn, index).as_bytes()) {
                error!(%turn, error = %cause, "log cannot say that it is full");
            }
        }
    }

    /// What the log did not keep, for the last line.
    pub fn dropped(&self) -> Option<Dropped> {
        self.dropped
    }

    /// Whether parts are missing.
    pub fn has_holes(&self) -> bool {
        self.dropped.is_some()
    }

    /// Writes the last line; the old form has none. May be tried again.
    ///
    /// # Errors
    /// What the file system says; the line is not in the log then.
    pub fn end(&mut self, end: &TurnEnd) -> io::Result<()> {
        if self.form == LogForm::Old {
            return Ok(());
        }
        let record = turn_end_record(Timestamp::now(), end);
        self.append(record.as_bytes())
    }

    fn drop_part(&mut self, index: PartIndex, bytes: usize) {
        let dropped = self.dropped.get_or_insert(Dropped {
            first: index,
            last: index,
            count: 0,
            bytes: 0,
        });
        dropped.last = index;
        dropped.count += 1;
        dropped.bytes += bytes as u64;
    }

    /// Appends whole lines; on failure the log ends where it did before.
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        match self.file.write_all(lines) {
            Ok(()) => {
                self.size += lines.len() as u64;
                Ok(())
            }
            Err(cause) => {
                self.file.set_len(self.size)?;
                Err(cause)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bex_proto::driver::TurnState;

    #[test]
    fn the_reserve_is_kept_free_for_the_last_two_records() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("log");
        let form = LogForm::Numbered(Generation(1));
        let mut log = TurnLog::begin(&path, form, TurnNo(1)).expect("a log");
        let part = format!(r#"{{"type":"x","d":"{}"}}"#, "y".repeat(900));
        let mut index = PartIndex(0);
        while !log.has_holes() {
            log.part(TurnNo(1), index, part.as_bytes());
            index = index.next();
        }
        let first = log.dropped().expect("just dropped").first;
        let mark = dropped_record(TurnNo(1), first).len() as u64;
        let kept = log.size - mark;
        let bound = limits::TURN_LOG_BYTES - limits::TURN_LOG_RESERVE;
        assert!(kept <= bound && kept > bound - 1100, "{kept}");
        log.part(TurnNo(1), index, br#"{"type":"small"}"#);
        assert_eq!(
            log.size,
            kept + mark,
            "nothing but turn-end comes after the mark"
        );
        let end = TurnEnd {
            turn: TurnNo(u32::MAX),
            parts: u32::MAX,
            bytes: u64::MAX,
            sha256: "f".repeat(64),
            state: TurnState::Succeeded,
            dropped: log.dropped(),
        };
        log.end(&end).expect("the reserve has room for it");
        let size = std::fs::metadata(&path).expect("a log").len();
        assert!(size <= limits::TURN_LOG_BYTES, "{size}");
    }
}
