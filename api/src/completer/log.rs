//! From the bytes of one window of a turn's log to batches for the store: nothing is invented, nothing fails its
//! neighbours.
//!
//! A line that is a part becomes that part, its bytes shared with the window. What the store cannot hold becomes the
//! stand-in under the same id, as the tee would have made it. A line that names no part is stepped over and marks the
//! turn. The turn-end line is never stepped over: it is met again until the turn is settled.

mod line;

use bex_proto::driver::{LogRecord, TurnEnd};
use bex_proto::exec::{LogWindow, WindowEnding};
use bex_proto::transcript::Part;
use bex_proto::{Generation, TurnNo, limits};
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
    /// Something between the two offsets could not be stored as it was.
    pub unstorable: bool,
    /// The log offset of the batch's first byte.
    pub from: u64,
    /// The log offset behind its last byte.
    pub to: u64,
}

/// What stood in the window beside parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings {
    /// The turn's last record.
    pub turn_end: Option<TurnEnd>,
    /// The log is another turn's or another generation's: nothing of it may be used.
    pub foreign: bool,
    /// It ends in the middle of a line that nobody will finish.
    pub torn: bool,
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
    findings: Findings,
    done: bool,
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
            findings: Findings {
                foreign,
                ..Findings::default()
            },
            done: foreign,
        }
    }

    /// What was found so far; whole once [`LogReader::next_batch`] answered `None`.
    pub fn findings(&self) -> &Findings {
        &self.findings
    }

    /// The next batch. `None` at the end of the window, at the turn-end, or when the log is not the expected one.
    pub fn next_batch(&mut self) -> Option<Batch> {
        if self.skipped > 0 && !self.done {
            // a line longer than a window: stepped over by offset
            self.done = true;
            let to = self.base + self.skipped;
            return Some(Batch {
                parts: Vec::new(),
                unstorable: true,
                from: self.base,
                to,
            });
        }
        let from = self.offset();
        let mut batch = Batch {
            parts: Vec::new(),
            unstorable: false,
            from,
            to: from,
        };
        let mut room = limits::HARVEST_BATCH_BYTES;
        while !self.done && batch.parts.len() < limits::HARVEST_BATCH_PARTS {
            let Some((text, next)) = self.peek() else {
                break;
            };
            let unterminated =
                next == self.bytes.len() && self.ending == WindowEnding::Unterminated;
            if unterminated && LogRecord::parse(&text).is_none() {
                // left unread: a driver that starts again may still finish the log behind it
                self.findings.torn = !text.trim_ascii().is_empty();
                self.done = true;
                break;
            }
            match line::read(&self.expected, &text) {
                Line::Part(part) => {
                    if part.bytes.len() > room && !batch.parts.is_empty() {
                        break;
                    }
                    room = room.saturating_sub(part.bytes.len());
                    batch.unstorable |= line::is_stand_in(&part);
                    batch.parts.push(part);
                }
                Line::Nothing => {}
                Line::TurnEnd(end) => {
                    self.findings.turn_end = Some(end);
                    self.done = true;
                    break;
                }
                Line::Foreign => {
                    self.findings.foreign = true;
                    self.done = true;
                    return None;
                }
                Line::Garbage => batch.unstorable = true,
            }
            self.at = next;
            batch.to = self.offset();
        }
        (batch.to > batch.from).then_some(batch)
    }

    fn offset(&self) -> u64 {
        self.base + self.at as u64
    }

    /// The next line without its newline, and where the one after it begins.
    fn peek(&self) -> Option<(Bytes, usize)> {
        let rest = &self.bytes[self.at..];
        if rest.is_empty() {
            return None;
        }
        let length = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
        let next = (self.at + length + 1).min(self.bytes.len());
        Some((self.bytes.slice(self.at..self.at + length), next))
    }
}

#[cfg(test)]
mod tests;
