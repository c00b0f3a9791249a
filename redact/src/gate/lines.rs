//! Lines of JSON, data of server-sent events and elements of arrays as parts: what their deltas join to.

use std::collections::HashMap;
use std::sync::LazyLock;

use memchr::memmem;

use super::look::Look;
use super::parts::{self, Record};

/// Texts by session, turn, kind and id.
#[derive(Default)]
pub(super) struct Joined {
    texts: HashMap<String, Vec<u8>>,
    arrays: usize,
}

/// Shorter lines hold no delta: its type alone is longer.
const SHORTEST: usize = 24;
/// What every delta has, in its type or as a name.
static DELTA: LazyLock<memmem::Finder<'_>> = LazyLock::new(|| memmem::Finder::new("delta"));

/// Parts stand so deep in a document at most, and what they are made of one deeper.
const LEVELS: usize = 9;
/// In a line there is a record, its part, and what that is made of.
const LINE_LEVELS: usize = 3;
const TOOL_INPUT: &str = "tool-input-delta";

/// Looks at a text, line by line where it has lines of JSON.
pub(super) fn each(text: &[u8], look: &mut Look<'_>, mut joined: Option<&mut Joined>) {
    let (mut from, mut at) = (0, 0);
    let is_document = serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok();
    for line in text.split_inclusive(|b| *b == b'\n') {
        let data = data(line);
        if data.first() == Some(&b'{') {
            let before = at + line.len() - data.len();
            if !is_document {
                // a line has bounds of its own
                if from < before {
                    look.whole(&text[from..before]);
                }
                look.whole(data);
                from = at + line.len();
            }
            if let Some(joined) = joined.as_deref_mut() {
                joined.line(data);
            }
        }
        at += line.len();
    }
    look.whole(&text[from..]);
}

/// What a line says as an event, without the field's name; any other line as it is. No white space in front.
pub(super) fn data(line: &[u8]) -> &[u8] {
    let line = line.strip_prefix(b"data:").unwrap_or(line);
    line.trim_ascii_start()
}

/// What deltas within one text join to: a document's, or its lines'.
pub(super) fn within(text: &[u8]) -> Vec<Vec<u8>> {
    // two of the shortest deltas are longer
    if text.len() < 2 * SHORTEST || DELTA.find(text).is_none() {
        return Vec::new();
    }
    let two = memmem::find_iter(text, "-delta").nth(1).is_some();
    if !two && memmem::find(text, b"\\u").is_none() {
        return Vec::new();
    }
    let mut whole = Joined::default();
    if parts::take(text, LEVELS, &mut whole).is_ok() {
        return whole.into_texts();
    }
    // no document, or one with a mistake behind its deltas
    let mut lines = Joined::default();
    for line in text.split(|b| *b == b'\n') {
        // what a line says before its mistake counts
        let _ = parts::take(data(line), LEVELS, &mut lines);
    }
    [whole.into_texts(), lines.into_texts()].concat()
}

impl Joined {
    fn line(&mut self, line: &[u8]) {
        if line.len() < SHORTEST {
            return;
        }
        let telling = [&b"delta"[..], b"-start", b"\\u"]
            .iter()
            .any(|sign| memmem::find(line, sign).is_some());
        if telling {
            // as above
            let _ = parts::take(line, LINE_LEVELS, self);
        }
    }

    /// Another array: a number that none had before.
    pub fn array(&mut self) -> usize {
        self.arrays += 1;
        self.arrays
    }

    /// Takes the part that a record is, or has, where it tells a delta.
    pub fn record(&mut self, record: &Record, array: usize) {
        let part = record.part.as_deref().unwrap_or(record);
        let (kind, id, delta) = match part.kind.as_deref() {
            Some(kind @ ("text-delta" | "reasoning-delta")) => (kind, &part.id, &part.delta),
            Some("tool-input-delta") => (TOOL_INPUT, &part.call, &part.input_delta),
            Some("text-start") => return self.begins(record, array, "text-delta", &part.id),
            Some("reasoning-start") => {
                return self.begins(record, array, "reasoning-delta", &part.id);
            }
            Some("tool-input-start") => return self.begins(record, array, TOOL_INPUT, &part.call),
            _ => return,
        };
        if let Some(delta) = delta.as_deref().filter(|delta| !delta.is_empty()) {
            let text = self.texts.entry(owner(record, array, kind, id));
            text.or_default().extend_from_slice(delta.as_bytes());
        }
    }

    /// A text of the same id that begins anew is another one.
    fn begins(&mut self, record: &Record, array: usize, kind: &str, id: &Option<String>) {
        if let Some(text) = self.texts.get_mut(&owner(record, array, kind, id)) {
            text.push(b'\n');
        }
    }

    fn into_texts(self) -> Vec<Vec<u8>> {
        self.texts.into_values().collect()
    }

    /// Looks at what the deltas joined to.
    pub fn finish(self, look: &mut Look<'_>) {
        for text in self.into_texts() {
            look.whole(&text);
        }
    }
}

/// Whose text a delta goes on with.
fn owner(record: &Record, array: usize, kind: &str, id: &Option<String>) -> String {
    let (session, turn) = (&record.session, &record.turn);
    format!("{array} {session:?} {turn:?} {kind} {id:?}")
}
