//! What a turn is: from a session's events, in their order, to the rows that tell of them. Pure, so that it can be proved and repeated: the
//! same events give the same rows, from the log's beginning or from any [`Builder::boundary`].
//!
//! An event passes these files in order: [`lines`] puts lines together, [`provider`] says what each means, [`open_turn`] collects, and
//! [`policy`] decides what becomes a message. [`import`] and [`parts`] bring other records to the same blocks.

mod built;
mod import;
mod json;
mod lines;
mod open_turn;
mod origin;
mod parts;
mod policy;
mod provider;
mod streaming;
#[cfg(test)]
mod tests;

use bex_proto::message::{Gap, TerminalReason};
use bex_proto::remote::OutputStream;
use jiff::Timestamp;

pub use built::{Built, BuiltBlock, BuiltSystem, BuiltTurn, Cursor, LogEvent};
pub use import::{Imported, import};
pub use parts::of_parts;
pub use policy::{Told, evidence_ids, told, tool_call_ids, visible_text};

use lines::{Lines, Place, Text};
use open_turn::{Before, OpenTurn};
use provider::{End, Said};

/// Characters of a program's own session id; a longer one is none.
const CLI_SESSION: usize = 200;

/// Reads events in the order of their indexes.
#[derive(Debug, Clone)]
pub struct Builder {
    start: Cursor,
    lines: Lines,
    open: Option<OpenTurn>,
    /// What is known of the next turn.
    before: Before,
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
            before: Before::default(),
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
        let place = |offset| Place {
            index: event.index,
            offset: small(offset),
            at: event.at,
        };
        match event.stream {
            OutputStream::Stdout => self.stdout(event, place, out),
            OutputStream::System => {
                if event.complete && !event.data.trim().is_empty() {
                    let content = event.data.replace('\0', "\u{fffd}");
                    self.system(content, place(event.data.len()), out);
                }
            }
            OutputStream::RequestState => {
                if is_aborted(event.data) {
                    self.close(TerminalReason::Aborted.into(), event.at, out);
                }
            }
            OutputStream::Stderr | OutputStream::Permission => {}
        }
        self.mark(self.next, 0);
    }

    fn stdout(
        &mut self,
        event: &LogEvent<'_>,
        place: impl Fn(usize) -> Place,
        out: &mut Vec<Built>,
    ) {
        let mut offset = match event.index == self.start.index {
            true => self.start.offset as usize,
            false => 0,
        };
        let data = event.data.get(offset..).unwrap_or_default();
        for piece in data.split_inclusive('\n') {
            let begin = place(offset);
            offset += piece.len();
            if let Some(line) = self.lines.take(piece, begin) {
                self.line(line, place(offset), out);
                self.mark(event.index, small(offset));
            }
        }
        if event.complete {
            self.half(place(offset), out);
            self.close(TerminalReason::ProcessExit.into(), event.at, out);
            // of a program that has gone; what never arrived may be of the next one
            let gaps = std::mem::take(&mut self.before.gaps);
            self.before = Before {
                gaps,
                ..Before::default()
            };
        }
    }

    /// What a program did not finish may be whole all the same.
    fn half(&mut self, end: Place, out: &mut Vec<Built>) {
        if let Some(line) = self.lines.rest() {
            self.line(line, end, out);
        }
    }

    fn line(&mut self, line: lines::Line, end: Place, out: &mut Vec<Built>) {
        match line.text {
            Text::Object(text) => {
                if let Some(object) = json::object(&text) {
                    for said in provider::read(&object) {
                        self.said(said, line.place, end, out);
                    }
                }
            }
            Text::TooLong => self.about().overflow = true,
            Text::Other => {}
        }
    }

    /// Hears what a line says that stands from `begin` to `end`.
    fn said(&mut self, said: Said, begin: Place, end: Place, out: &mut Vec<Built>) {
        match said {
            Said::Begin(session) => {
                self.close(TerminalReason::ProcessExit.into(), end.at, out);
                let session = session.filter(|id| !id.is_empty() && id.len() <= CLI_SESSION);
                out.extend(session.map(Built::CliSession));
            }
            Said::About {
                conversation,
                model,
            } => {
                let about = self.about();
                about.conversation = conversation.or(about.conversation.take());
                about.model = model.or(about.model.take());
            }
            Said::Blocks(message) => self.turn(begin).blocks(message),
            Said::Unfinished(message) => self.turn(begin).unfinished(message),
            Said::Message { id, model } => self.turn(begin).message(id, model),
            Said::Piece(delta) => {
                if let Some(open) = &mut self.open {
                    open.piece(delta);
                }
            }
            Said::System(content) => self.system(content, end, out),
            Said::End(reason) => {
                if self.before.is_lossy() {
                    // a turn of which nothing arrived
                    self.turn(begin);
                }
                self.close(reason, end.at, out);
            }
        }
    }

    /// The open turn; it begins here if there is none.
    fn turn(&mut self, begin: Place) -> &mut OpenTurn {
        let before = &mut self.before;
        self.open
            .get_or_insert_with(|| OpenTurn::new(begin, std::mem::take(before)))
    }

    /// What is known of the open turn, or of the next one.
    fn about(&mut self) -> &mut Before {
        match &mut self.open {
            Some(open) => open.about(),
            None => &mut self.before,
        }
    }

    fn system(&mut self, content: String, end: Place, out: &mut Vec<Built>) {
        out.push(Built::System(BuiltSystem {
            ordinal: self.ordinal,
            index: end.index,
            line: end.offset,
            content,
            at: end.at,
        }));
        self.ordinal += 1;
    }

    /// These never come. Half a line is given up.
    pub fn gap(&mut self, gap: Gap) {
        self.next = gap.to + 1;
        self.lines.give_up();
        self.about().gaps.push(gap);
    }

    /// The session is over: a line that was not finished is read as it is, and what is open ends.
    pub fn end(&mut self, reason: TerminalReason, at: Timestamp, out: &mut Vec<Built>) {
        let end = Place {
            index: self.next.saturating_sub(1),
            offset: u32::MAX,
            at,
        };
        self.half(end, out);
        self.close(reason.into(), at, out);
        if self.next > self.start.index {
            self.mark(self.next, 0);
        }
    }

    fn close(&mut self, end: End, at: Timestamp, out: &mut Vec<Built>) {
        let last = self.next.saturating_sub(1);
        let turn = self.open.take();
        if let Some(turn) = turn.and_then(|open| open.close(self.ordinal, last, &end, at)) {
            self.ordinal += 1;
            out.push(Built::Turn(turn));
        }
    }

    /// Everything before this place is read.
    fn mark(&mut self, index: u64, offset: u32) {
        if self.open.is_none() && self.before.is_empty() && self.lines.is_empty() {
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
    let state = match json::value(data) {
        Some(state) => state
            .get("state")
            .and_then(|s| Some(s.as_str()? == "aborted")),
        None => Some(data.trim() == "aborted"),
    };
    state == Some(true)
}
