//! What goes into a builder and what comes out.

use bex_proto::message::{Block, Gap, TerminalReason};
use bex_proto::remote::OutputStream;
use jiff::Timestamp;

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
