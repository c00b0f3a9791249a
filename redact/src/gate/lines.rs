//! Lines of JSON as parts: what their deltas join to.

use std::collections::HashMap;

use memchr::memmem;
use serde_json::Value;

use super::look::Look;

/// Texts by session, turn, kind and id.
#[derive(Default)]
pub(super) struct Joined(HashMap<String, Vec<u8>>);

/// Looks at a text, line by line where it has lines of JSON.
pub(super) fn each(text: &[u8], look: &mut Look<'_>, mut joined: Option<&mut Joined>) {
    let (mut from, mut at) = (0, 0);
    let is_document = serde_json::from_slice::<serde::de::IgnoredAny>(text).is_ok();
    for line in text.split_inclusive(|b| *b == b'\n') {
        let begins = line.trim_ascii_start().first() == Some(&b'{');
        if begins && !is_document {
            // a line has bounds of its own
            if from < at {
                look.whole(&text[from..at]);
            }
            look.whole(line);
            from = at + line.len();
        }
        if begins && let Some(joined) = joined.as_deref_mut() {
            joined.line(line);
        }
        at += line.len();
    }
    look.whole(&text[from..]);
}

impl Joined {
    fn line(&mut self, line: &[u8]) {
        // the shortest delta's type alone is longer
        if line.len() < 24 {
            return;
        }
        let telling = [&b"delta"[..], b"-start", b"\\u"]
            .iter()
            .any(|sign| memmem::find(line, sign).is_some());
        if !telling {
            return;
        }
        let Ok(Value::Object(record)) = serde_json::from_slice::<Value>(line) else {
            return;
        };
        let part = match record.get("part") {
            Some(Value::Object(part)) => part,
            _ => &record,
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
            _ => return,
        };
        let id = if kind == "tool-input-delta" {
            part.get("toolCallId")
        } else {
            part.get("id")
        };
        let Some(delta) = delta else { return };
        let owner = format!(
            "{:?} {:?} {kind} {id:?}",
            record.get("session"),
            record.get("turn")
        );
        self.0
            .entry(owner)
            .or_default()
            .extend_from_slice(delta.as_bytes());
    }

    /// Looks at what the deltas joined to.
    pub fn finish(self, look: &mut Look<'_>) {
        for text in self.0.into_values() {
            look.whole(&text);
        }
    }
}
