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
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn split(bytes: &[u8], chunk: usize) -> (Vec<Event>, bool) {
        let (mut splitter, mut events) = (Splitter::new(), Vec::new());
        for piece in bytes.chunks(chunk.max(1)) {
            splitter.push(piece);
            while let Some(event) = splitter.next_event() {
                events.push(event);
            }
            assert!(
                splitter.buffer.len() <= limits::SSE_EVENT_BYTES,
                "the bound holds"
            );
        }
        (events, splitter.is_torn())
    }

    fn data(id: Option<&str>, text: &str) -> Event {
        Event::Data {
            id: id.map(|i| Bytes::copy_from_slice(i.as_bytes())),
            data: Bytes::copy_from_slice(text.as_bytes()),
        }
    }

    #[test]
    fn every_line_ending_and_field_form() {
        let wire = b": hello\n\nid: 1.0\ndata: {\"a\":1}\n\nid:1.1\r\ndata:x\r\n\r\nevent: e\rdata: y\r\rretry: 5\n\ndata: one\ndata: two\n\ndata: [DONE]\n\ndata: torn";
        let expected = vec![
            data(Some("1.0"), "{\"a\":1}"),
            data(Some("1.1"), "x"),
            data(None, "y"),
            data(None, "one\ntwo"),
            data(None, "[DONE]"),
        ];
        for chunk in 1..wire.len() {
            assert_eq!(
                split(wire, chunk),
                (expected.clone(), true),
                "chunks of {chunk}"
            );
        }
    }

    #[test]
    fn oversized_data_is_named_and_the_next_event_is_whole() {
        let big = "x".repeat(2 * limits::PART_BYTES);
        let wire = format!("id: 1.0\ndata: {big}\n\nid: 1.1\ndata: ok\n\n");
        let sha256 = crate::transcript::sha256_hex(big.as_bytes());
        let expected = vec![
            Event::Oversized {
                id: Some(Bytes::from_static(b"1.0")),
                bytes: big.len() as u64,
                sha256,
            },
            data(Some("1.1"), "ok"),
        ];
        for chunk in [1000, 65_536, wire.len()] {
            // one push of everything may hold it all; the bound is on what stays between pushes
            let (mut splitter, mut events) = (Splitter::new(), Vec::new());
            for piece in wire.as_bytes().chunks(chunk) {
                splitter.push(piece);
                while let Some(event) = splitter.next_event() {
                    events.push(event);
                }
            }
            assert_eq!(events, expected, "chunks of {chunk}");
        }
    }

    #[test]
    fn a_part_of_exactly_the_limit_passes_and_one_more_byte_does_not() {
        for (extra, kept) in [(0, true), (1, false)] {
            let big = "x".repeat(limits::PART_BYTES + extra);
            let (events, _) = split(format!("data: {big}\n\n").as_bytes(), 4096);
            assert_eq!(matches!(&events[..], [Event::Data { .. }]), kept);
        }
    }

    #[test]
    fn many_small_lines_of_one_event_are_bounded_too() {
        let line = "x".repeat(1000);
        let wire = format!("data: {line}\n").repeat(1500) + "\n";
        let joined = vec![line.as_str(); 1500].join("\n");
        let (events, _) = split(wire.as_bytes(), 8192);
        assert_eq!(
            events,
            [Event::Oversized {
                id: None,
                bytes: joined.len() as u64,
                sha256: crate::transcript::sha256_hex(joined.as_bytes())
            }]
        );
    }

    #[test]
    fn frames_read_back() {
        let mut out = BytesMut::new();
        write_event(&mut out, Some(PartId::new(3, 120)), b"{}");
        write_cursor(&mut out, PartId::new(4_000_000_000, 0));
        write_event(&mut out, None, b"[DONE]");
        assert_eq!(
            &out[..],
            b"id: 3.120\ndata: {}\n\nid: 4000000000.0\n\ndata: [DONE]\n\n"
        );
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_events(lines in proptest::collection::vec("[a-z:\\r\\n ]{0,12}", 0..30), chunk in 1usize..9) {
            let wire = lines.iter().map(|l| format!("data: {l}\n")).collect::<String>();
            prop_assert_eq!(split(wire.as_bytes(), chunk), split(wire.as_bytes(), usize::MAX >> 1));
        }
    }
}
