//! Server-sent events: splitting a driver's bytes into events, and framing parts for a viewer.
//!
//! The splitter never changes a byte of a part and never holds more than one event of [`limits::SSE_EVENT_BYTES`]; a longer
//! one is digested while it is skipped, so that it can be named but not kept.

use bytes::{BufMut, Bytes, BytesMut};
use sha2::{Digest, Sha256};

use crate::ids::PartId;
use crate::limits;

/// The data of the last event of a stream that truly ended.
pub const DONE: &str = "[DONE]";
/// The comment that opens a stream at once.
pub const STREAM_OPEN: &str = ": stream-open\n\n";
/// The comment of a quiet stream.
pub const KEEP_ALIVE: &str = ": keep-alive\n\n";

/// One event of a driver's stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An event with data.
    Data {
        /// The `id:` line's value.
        id: Option<Bytes>,
        /// The data, lines joined by a newline.
        data: Bytes,
    },
    /// An event whose data was over the limit and is gone.
    Oversized {
        /// The `id:` line's value, if it stood before the data.
        id: Option<Bytes>,
        /// Length of the data.
        bytes: u64,
        /// Its SHA-256, lower-case hexadecimal.
        sha256: String,
    },
}

/// Data of the event being read.
#[derive(Debug, Default)]
enum Data {
    #[default]
    None,
    Whole(Bytes),
    Joined(BytesMut),
    Skipped(Skipped),
}

#[derive(Debug, Default)]
struct Skipped {
    hash: Sha256,
    bytes: u64,
}

impl Skipped {
    fn add(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
    }
}

/// What the bytes at the head of the buffer belong to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// A line's start.
    #[default]
    Start,
    /// The rest of a data line that is too long to keep.
    SkipData,
    /// The rest of another line that is too long to keep.
    SkipOther,
}

/// Splits bytes into events. LF, CRLF and CR all end a line, whatever the chunking.
#[derive(Debug, Default)]
pub struct Splitter {
    buffer: BytesMut,
    /// Bytes of the buffer that hold no line end.
    scanned: usize,
    line: Line,
    after_cr: bool,
    id: Option<Bytes>,
    data: Data,
}

const DATA: &[u8] = b"data:";

impl Splitter {
    /// A splitter at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds received bytes. Call [`Splitter::next_event`] until it gives nothing before the next push.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Whether the stream broke inside an event. The broken event is never given.
    pub fn is_torn(&self) -> bool {
        !self.buffer.is_empty() || self.id.is_some() || !matches!(self.data, Data::None)
    }

    /// The next whole event.
    pub fn next_event(&mut self) -> Option<Event> {
        loop {
            if self.after_cr && !self.buffer.is_empty() {
                if self.buffer[0] == b'\n' {
                    let _ = self.buffer.split_to(1);
                    self.scanned = self.scanned.saturating_sub(1);
                }
                self.after_cr = false;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', &self.buffer[self.scanned..])
                .map(|i| i + self.scanned)
            else {
                self.scanned = self.buffer.len();
                self.shed();
                return None;
            };
            self.scanned = 0;
            let text = self.buffer.split_to(end + 1).freeze();
            self.after_cr = text[end] == b'\r';
            if let Some(event) = self.end_line(text.slice(..end)) {
                return Some(event);
            }
        }
    }

    /// Lets go of an unfinished line that is over the limit, digesting it if it is data.
    fn shed(&mut self) {
        if self.line == Line::Start {
            if self.buffer.len() <= limits::SSE_EVENT_BYTES {
                return;
            }
            let is_data = self.buffer.starts_with(DATA);
            self.line = if is_data {
                Line::SkipData
            } else {
                Line::SkipOther
            };
            if is_data {
                let line = self.buffer.split().freeze();
                let skipped = self.skipped();
                skipped.add(value(&line[DATA.len()..]));
            }
        } else if self.line == Line::SkipData {
            let rest = self.buffer.split();
            self.skipped().add(&rest);
        }
        self.buffer.clear();
        self.scanned = 0;
    }

    /// Turns what was read of the event's data into a digest; a further data line adds its joining newline.
    fn skipped(&mut self) -> &mut Skipped {
        if !matches!(self.data, Data::Skipped(_)) {
            let mut skipped = Skipped::default();
            match &self.data {
                Data::Whole(line) => {
                    skipped.add(line);
                    skipped.add(b"\n");
                }
                Data::Joined(lines) => {
                    skipped.add(lines);
                    skipped.add(b"\n");
                }
                Data::None | Data::Skipped(_) => {}
            }
            self.data = Data::Skipped(skipped);
        }
        match &mut self.data {
            Data::Skipped(skipped) => skipped,
            _ => unreachable!("set just above"),
        }
    }

    fn end_line(&mut self, line: Bytes) -> Option<Event> {
        match std::mem::take(&mut self.line) {
            Line::SkipOther => return None,
            Line::SkipData => {
                self.skipped().add(&line);
                return None;
            }
            Line::Start => {}
        }
        if line.is_empty() {
            return self.dispatch();
        }
        if line.starts_with(DATA) {
            let data = line.slice_ref(value(&line[DATA.len()..]));
            self.add_data(data);
        } else if line.starts_with(b"id:") && line.len() <= limits::SSE_FIELD_BYTES {
            self.id = Some(line.slice_ref(value(&line[3..])));
        }
        None
    }

    fn add_data(&mut self, line: Bytes) {
        match &mut self.data {
            Data::None => self.data = Data::Whole(line),
            Data::Whole(first) => {
                let mut lines = BytesMut::from(&first[..]);
                lines.put_u8(b'\n');
                lines.extend_from_slice(&line);
                self.data = Data::Joined(lines);
            }
            Data::Joined(lines) => {
                lines.put_u8(b'\n');
                lines.extend_from_slice(&line);
            }
            Data::Skipped(skipped) => {
                skipped.add(b"\n");
                skipped.add(&line);
            }
        }
        let held = match &self.data {
            Data::Whole(line) => line.len(),
            Data::Joined(lines) => lines.len(),
            Data::None | Data::Skipped(_) => 0,
        };
        if held > limits::PART_BYTES {
            let mut skipped = Skipped::default();
            match std::mem::take(&mut self.data) {
                Data::Whole(line) => skipped.add(&line),
                Data::Joined(lines) => skipped.add(&lines),
                Data::None | Data::Skipped(_) => {}
            }
            self.data = Data::Skipped(skipped);
        }
    }

    fn dispatch(&mut self) -> Option<Event> {
        let id = self.id.take();
        match std::mem::take(&mut self.data) {
            Data::None => None,
            Data::Whole(data) => Some(Event::Data { id, data }),
            Data::Joined(lines) => Some(Event::Data {
                id,
                data: lines.freeze(),
            }),
            Data::Skipped(skipped) => Some(Event::Oversized {
                id,
                bytes: skipped.bytes,
                sha256: hex::encode(skipped.hash.finalize()),
            }),
        }
    }
}

/// A field's value: one leading space belongs to the syntax.
fn value(after_colon: &[u8]) -> &[u8] {
    after_colon.strip_prefix(b" ").unwrap_or(after_colon)
}

/// Frames one event. `data` must be one line: stored parts are, and so is compact JSON.
pub fn write_event(out: &mut BytesMut, id: Option<PartId>, data: &[u8]) {
    debug_assert!(
        memchr::memchr2(b'\n', b'\r', data).is_none(),
        "an event's data is one line"
    );
    out.reserve(data.len() + 40);
    if let Some(id) = id {
        write_id(out, id);
    }
    out.put_slice(b"data: ");
    out.put_slice(data);
    out.put_slice(b"\n\n");
}

/// Writes the line `id: 3.120`.
fn write_id(out: &mut BytesMut, id: PartId) {
    out.put_slice(b"id: ");
    write_number(out, id.turn.0);
    out.put_u8(b'.');
    write_number(out, id.index.0);
    out.put_u8(b'\n');
}

/// Tells a client its cursor without an event.
pub fn write_cursor(out: &mut BytesMut, id: PartId) {
    write_id(out, id);
    out.put_u8(b'\n');
}

fn write_number(out: &mut BytesMut, mut n: u32) {
    let mut digits = [0u8; 10];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    out.put_slice(&digits[at..]);
}

#[cfg(test)]
mod tests;
