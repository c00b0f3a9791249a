//! Lines of JSON, data of server-sent events and elements of arrays as parts: what their deltas join to.

use std::collections::HashMap;
use std::sync::LazyLock;

use memchr::memmem;
use serde_json::{Map, Value};

use super::look::Look;

/// Texts by session, turn, kind and id.
#[derive(Default)]
pub(super) struct Joined(HashMap<String, Vec<u8>>);

/// Shorter lines hold no delta: its type alone is longer.
const SHORTEST: usize = 24;
/// What every delta has, in its type or as a name.
static DELTA: LazyLock<memmem::Finder<'_>> = LazyLock::new(|| memmem::Finder::new("delta"));

/// Parts stand so deep in a document at most.
const LEVELS: usize = 8;

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
    let mut document = Document::default();
    match serde_json::from_slice::<Value>(text) {
        Ok(value) => document.parts(&value, 0, LEVELS),
        Err(_) => text
            .split(|b| *b == b'\n')
            .filter_map(|line| serde_json::from_slice::<Value>(data(line)).ok())
            .for_each(|line| document.parts(&line, 0, LEVELS)),
    }
    document.joined.0.into_values().collect()
}

/// A document, or lines of them, that parts stand in.
#[derive(Default)]
struct Document {
    joined: Joined,
    arrays: usize,
}

impl Document {
    /// Takes parts wherever they stand; those of one array belong together.
    fn parts(&mut self, value: &Value, array: usize, levels: usize) {
        let Some(levels) = levels.checked_sub(1) else {
            return;
        };
        match value {
            Value::Object(record) => {
                if self.joined.part(record, array) {
                    return;
                }
                for value in record.values() {
                    self.parts(value, array, levels);
                }
            }
            Value::Array(elements) => {
                self.arrays += 1;
                let array = self.arrays;
                for element in elements {
                    self.parts(element, array, levels);
                }
            }
            _ => {}
        }
    }
}

impl Joined {
    fn line(&mut self, line: &[u8]) {
        if line.len() < SHORTEST {
            return;
        }
        let telling = [&b"delta"[..], b"-start", b"\\u"]
            .iter()
            .any(|sign| memmem::find(line, sign).is_some());
        if !telling {
            return;
        }
        if let Ok(Value::Object(record)) = serde_json::from_slice::<Value>(line) {
            self.part(&record, 0);
        }
    }

    /// Whether it is a part, or a record with one, that matters.
    fn part(&mut self, record: &Map<String, Value>, array: usize) -> bool {
        let part = match record.get("part") {
            Some(Value::Object(part)) => part,
            _ => record,
        };
        let text = |name: &str| part.get(name).and_then(Value::as_str);
        let (kind, delta) = match text("type") {
            Some("text-delta" | "reasoning-delta") => {
                (text("type").unwrap_or_default(), text("delta"))
            }
            Some("tool-input-delta") => ("tool-input-delta", text("inputTextDelta")),
            Some("text-start") => ("text-delta", Some("\n")),
            Some("reasoning-start") => ("reasoning-delta", Some("\n")),
            Some("tool-input-start") => ("tool-input-delta", Some("\n")),
            _ => return false,
        };
        let id = if kind == "tool-input-delta" {
            part.get("toolCallId")
        } else {
            part.get("id")
        };
        let Some(delta) = delta else { return false };
        let owner = format!(
            "{array} {:?} {:?} {kind} {id:?}",
            record.get("session"),
            record.get("turn")
        );
        self.0
            .entry(owner)
            .or_default()
            .extend_from_slice(delta.as_bytes());
        true
    }

    /// Looks at what the deltas joined to.
    pub fn finish(self, look: &mut Look<'_>) {
        for text in self.0.into_values() {
            look.whole(&text);
        }
    }
}
