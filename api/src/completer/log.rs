//! From the bytes of one window of a turn's log to batches for the store: nothing is invented, nothing fails its
//! neighbours.
//!
//! A line that is a part becomes that part, its bytes shared with the window. What the store cannot hold becomes the
//! stand-in under the same id, as the tee would have made it. A line that names no part is stepped over and marks the
//! turn. The turn-end line is never stepped over: it is met again until the turn is settled.

mod line;

use std::ops::Range;

use bex_proto::driver::{LogRecord, TurnEnd};
use bex_proto::exec::{LogWindow, WindowEnding};
use bex_proto::transcript::Part;
use bex_proto::{Generation, TurnNo, limits};
use bex_store::transcript::Marks;
use bytes::Bytes;

use line::Line;

/// Which log this has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// The turn that is harvested.
    pub turn: TurnNo,
    /// The sandbox life that speaks it.
    pub generation: Generation,
    /// How old its driver is.
    pub form: Form,
}

/// The two forms of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// One log a turn, with a first and a last line.
    Current,
    /// One log for the driver's one turn, parts only.
    Legacy,
}

/// Parts for one append and the log's move that belongs to them.
#[derive(Debug)]
pub struct Batch {
    /// At most [`limits::HARVEST_BATCH_PARTS`] and, unless it is one part, [`limits::HARVEST_BATCH_BYTES`].
    pub parts: Vec<Part>,
    /// Whether something between the two offsets could not be stored as it was.
    pub marks: Marks,
    /// The log offset of the batch's first byte.
    pub from: u64,
    /// The log offset behind its last byte.
    pub to: u64,
}

/// Why reading ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogEnd {
    /// The window is read; the log may go on behind it.
    WindowEnd,
    /// This is the turn's last record.
    TurnEnd(TurnEnd),
    /// The log ends in the middle of a line that nobody will finish.
    Torn,
    /// The log is another turn's or another generation's: nothing of it may be used.
    Foreign,
}

/// Reads one window, batch by batch.
#[derive(Debug)]
pub struct LogReader {
    expected: Expected,
    bytes: Bytes,
    ending: WindowEnding,
    /// Offset of the window's first byte in the log.
    base: u64,
    /// Bytes of the window already read.
    at: usize,
    skipped: u64,
    end: Option<LogEnd>,
}

impl LogReader {
    /// A reader of a proved window.
    pub fn new(expected: Expected, window: &LogWindow, bytes: Bytes) -> Self {
        let foreign = match expected.form {
            Form::Current => window.generation != Some(expected.generation),
            Form::Legacy => window.generation.is_some(),
        };
        Self {
            expected,
            bytes,
            ending: window.ending,
            base: window.offset,
            at: 0,
            skipped: if window.ending == WindowEnding::LineTooLong {
                window.length
            } else {
                0
            },
            end: foreign.then_some(LogEnd::Foreign),
        }
    }

    /// Why there is no more to read; `None` until it is known, which it is once [`LogReader::next_batch`] answered `None`.
    pub fn end(&self) -> Option<&LogEnd> {
        self.end.as_ref()
    }

    /// The next batch. `None` at the end of the window, at the turn-end, or when the log is not the expected one.
    pub fn next_batch(&mut self) -> Option<Batch> {
        if self.skipped > 0 && self.end.is_none() {
            // a line longer than a window: stepped over by offset
            self.end = Some(LogEnd::WindowEnd);
            let to = self.base + self.skipped;
            return Some(Batch {
                parts: Vec::new(),
                marks: Marks::Unstorable,
                from: self.base,
                to,
            });
        }
        let from = self.offset();
        let mut batch = Batch {
            parts: Vec::new(),
            marks: Marks::Clean,
            from,
            to: from,
        };
        let mut room = limits::HARVEST_BATCH_BYTES;
        while self.end.is_none() && batch.parts.len() < limits::HARVEST_BATCH_PARTS {
            let Some((line, next)) = self.peek() else {
                self.end = Some(LogEnd::WindowEnd);
                break;
            };
            let text = &self.bytes[line];
            let unterminated =
                next == self.bytes.len() && self.ending == WindowEnding::Unterminated;
            if unterminated && LogRecord::parse(text).is_none() {
                // left unread: a driver that starts again may still finish the log behind it
                self.end = Some(if text.trim_ascii().is_empty() {
                    LogEnd::WindowEnd
                } else {
                    LogEnd::Torn
                });
                break;
            }
            match line::read(&self.expected, &self.bytes, text) {
                Line::Part(part) => {
                    if part.bytes.len() > room && !batch.parts.is_empty() {
                        break;
                    }
                    room = room.saturating_sub(part.bytes.len());
                    if line::is_stand_in(&part) {
                        batch.marks = Marks::Unstorable;
                    }
                    batch.parts.push(part);
                }
                Line::Nothing => {}
                Line::TurnEnd(end) => {
                    self.end = Some(LogEnd::TurnEnd(end));
                    break;
                }
                Line::Foreign => {
                    self.end = Some(LogEnd::Foreign);
                    return None;
                }
                Line::Garbage => batch.marks = Marks::Unstorable,
            }
            self.at = next;
            batch.to = self.offset();
        }
        (batch.to > batch.from).then_some(batch)
    }

    /// Bytes that were not read yet.
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    /// Where the next line is, without its newline, and where the one after it begins.
    fn peek(&self) -> Option<(Range<usize>, usize)> {
        let rest = &self.bytes[self.at..];
        if rest.is_empty() {
            return None;
        }
        let length = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let next = (self.at + length + 1).min(self.bytes.len());
        Some((self.at..self.at + length, next))
    }
}

#[cfg(test)]
mod tests;
