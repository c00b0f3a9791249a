//! What a turn is: from a session's events, in their order, to the rows that tell of them. Pure, so that it can be proved and repeated: the
//! same events give the same rows, from the log's beginning or from any [`Builder::boundary`].
//!
//! An event passes these files in order: [`lines`] puts lines together, [`provider`] says what each means, [`open_turn`] collects, and
//! [`policy`] decides what becomes a message. [`import`] and [`parts`] bring other records to the same blocks.

mod import;
mod lines;
mod open_turn;
mod parts;
mod policy;
mod provider;
#[cfg(test)]
mod tests;

use bex_proto::message::{Block, Gap, TerminalReason};
use bex_proto::remote::OutputStream;
use jiff::Timestamp;

pub use import::{Imported, import};
pub use parts::of_parts;
pub use policy::{Told, evidence_ids, told, tool_call_ids, visible_text};

use lines::{Lines, Place};
use open_turn::OpenTurn;
use provider::Said;

/// One event as the log has it.
#[derive(Debug, Clone, Copy)]
pub struct LogEvent<'a> {
    /// Its index.
    pub index: u64,
    /// Where it came from.
    pub stream: OutputStream,
    /// What it said.
    pub data: &'a str,
    /// The stream ended with it.
    pub complete: bool,
    /// When.
    pub at: Timestamp,
}

/// Where a builder may start: nothing is open and no line is half read before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor {
    /// The next event.
    pub index: u64,
    /// Bytes of its data that were read.
    pub offset: u32,
    /// Rows before it.
    pub ordinal: u64,
}

/// A row, or what is to be known of the session.
#[derive(Debug, Clone, PartialEq)]
pub enum Built {
    /// A turn that ended.
    Turn(BuiltTurn),
    /// What the program around the agent said.
    System(BuiltSystem),
    /// The program's own session id; no row.
    CliSession(String),
}

/// A turn that ended.
#[derive(Debug, Clone, PartialEq)]
pub struct BuiltTurn {
    /// Its place among the rows.
    pub ordinal: u64,
    /// Event and byte at which its first line begins.
    pub first: (u64, u32),
    /// The event that ended it.
    pub last_index: u64,
    /// What was said, in order.
    pub blocks: Vec<BuiltBlock>,
    /// Who said it.
    pub model: Option<String>,
    /// How it ended; `gap` where events are missing.
    pub terminal: TerminalReason,
    /// Events that never arrived.
    pub gaps: Vec<Gap>,
    /// Something of it was too large to be kept.
    pub overflow: bool,
    /// Of its first line's event.
    pub started_at: Timestamp,
    /// Of the event that ended it.
    pub completed_at: Timestamp,
}

/// A block and what its provider calls it.
#[derive(Debug, Clone, PartialEq)]
pub struct BuiltBlock {
    /// It.
    pub block: Block,
    /// The same wherever it is told again.
    pub origin: Option<String>,
}

/// A system row.
#[derive(Debug, Clone, PartialEq)]
pub struct BuiltSystem {
    /// Its place among the rows.
    pub ordinal: u64,
    /// The event at which it was said.
    pub index: u64,
    /// Byte of that event's data at which it ends: several may end in one event.
    pub line: u32,
    /// What.
    pub content: String,
    /// When.
    pub at: Timestamp,
}

/// Reads events in the order of their indexes.
#[derive(Debug, Clone)]
pub struct Builder {
    start: Cursor,
    lines: Lines,
    open: Option<OpenTurn>,
    /// Gaps before the next turn's first line.
    gaps: Vec<Gap>,
    /// A line before the next turn was too long.
    overflow: bool,
    ordinal: u64,
    boundary: Cursor,
    /// The next event.
    next: u64,
}

impl Builder {
    /// A builder that has read nothing behind `start`.
    pub fn new(start: Cursor) -> Self {
        Self {
            start,
            lines: Lines::default(),
            open: None,
            gaps: Vec::new(),
            overflow: false,
            ordinal: start.ordinal,
            boundary: start,
            next: start.index,
        }
    }

    /// The newest place where another builder may start.
    pub fn boundary(&self) -> Cursor {
        self.boundary
    }

    /// Reads an event. Of the first one, what was read before is passed over.
    pub fn event(&mut self, event: &LogEvent<'_>, out: &mut Vec<Built>) {
        self.next = event.index + 1;
        match event.stream {
            OutputStream::Stdout => self.stdout(event, out),
            OutputStream::System => {
                if event.complete && !event.data.trim().is_empty() {
                    let content = event.data.to_owned();
                    self.system(content, event, event.data.len(), out);
                }
            }
            OutputStream::RequestState => {
                if is_aborted(event.data) {
                    self.close(TerminalReason::Aborted, event.at, out);
                }
            }
            OutputStream::Stderr | OutputStream::Permission => {}
        }
        self.mark(event.index + 1, 0);
    }

    fn stdout(&mut self, event: &LogEvent<'_>, out: &mut Vec<Built>) {
        let begin = match event.index == self.start.index {
            true => (self.start.offset as usize).min(event.data.len()),
            false => 0,
        };
        let mut offset = begin;
        for piece in event.data[begin..].split_inclusive('\n') {
            let place = Place {
                index: event.index,
                offset: small(offset),
                at: event.at,
            };
            offset += piece.len();
            if let Some(line) = self.lines.take(piece, place) {
                self.line(line, event, offset, out);
                self.mark(event.index, small(offset));
            }
        }
        if event.complete {
            // what a program did not finish may be whole all the same
            if let Some(line) = self.lines.rest() {
                self.line(line, event, offset, out);
            }
            self.close(TerminalReason::ProcessExit, event.at, out);
        }
    }

    fn line(&mut self, line: lines::Line, event: &LogEvent<'_>, end: usize, out: &mut Vec<Built>) {
        let lines::Line { text, place } = line;
        let Some(text) = text else {
            match &mut self.open {
                Some(open) => open.overflow = true,
                None => self.overflow = true,
            }
            return;
        };
        for said in provider::read(&text) {
            match said {
                Said::Session(id) => out.push(Built::CliSession(id)),
                Said::System(content) => self.system(content, event, end, out),
                Said::End(reason) => self.close(reason, event.at, out),
                Said::Blocks(_) | Said::Partial(_) => {
                    let open = self.open.get_or_insert_with(|| {
                        let gaps = std::mem::take(&mut self.gaps);
                        let overflow = std::mem::take(&mut self.overflow);
                        OpenTurn::new(place, gaps, overflow)
                    });
                    open.hear(said);
                }
            }
        }
    }

    fn system(&mut self, content: String, event: &LogEvent<'_>, end: usize, out: &mut Vec<Built>) {
        out.push(Built::System(BuiltSystem {
            ordinal: self.ordinal,
            index: event.index,
            line: small(end),
            content,
            at: event.at,
        }));
        self.ordinal += 1;
    }

    /// These never come. Half a line is given up; what follows it parses as nothing.
    pub fn gap(&mut self, gap: Gap) {
        self.next = gap.to + 1;
        self.lines.give_up();
        match &mut self.open {
            Some(open) => open.gaps.push(gap),
            None => self.gaps.push(gap),
        }
    }

    /// The session is over: what is open ends.
    pub fn end(&mut self, reason: TerminalReason, at: Timestamp, out: &mut Vec<Built>) {
        self.close(reason, at, out);
        if self.next > self.start.index {
            self.mark(self.next, 0);
        }
    }

    fn close(&mut self, reason: TerminalReason, at: Timestamp, out: &mut Vec<Built>) {
        let Some(open) = self.open.take() else {
            return;
        };
        let turn = open.close(self.ordinal, self.next.saturating_sub(1), reason, at);
        self.ordinal += 1;
        out.push(Built::Turn(turn));
    }

    /// Everything before this place is read.
    fn mark(&mut self, index: u64, offset: u32) {
        let nothing = self.open.is_none() && self.gaps.is_empty() && !self.overflow;
        if nothing && self.lines.is_empty() {
            self.boundary = Cursor {
                index,
                offset,
                ordinal: self.ordinal,
            };
        }
    }
}

/// A byte of an event's data; an event has at most [`bex_proto::limits::REMOTE_LINE_BYTES`].
fn small(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}

fn is_aborted(data: &str) -> bool {
    let state = serde_json::from_str::<serde_json::Value>(data);
    let state = state
        .ok()
        .and_then(|v| Some(v.get("state")?.as_str()? == "aborted"));
    state.unwrap_or_else(|| data.trim() == "aborted")
}
