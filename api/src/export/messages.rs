//! A turn as a message of the AI SDK: what a page shows when it has read the turn's stream to its end.
//!
//! The stream is repaired first by the guard that viewers' streams go through, so that whatever is stored makes a message. A turn is
//! held as a whole while it is put together: a tool's output or a plan's last form may come at its end.

use std::collections::HashMap;

use bex_proto::TurnNo;
use bex_proto::session::Verdict;
use bex_proto::ui_stream::{ChunkHead, Guard, Output, Place};
use bex_store::transcript::StoredPart;
use bex_store::turns::TurnRow;
use serde_json::{Map, Value, json};

/// Puts one turn's message together.
pub(super) struct Message {
    turn: TurnNo,
    guard: Guard,
    parts: Vec<Value>,
    /// Open and answered parts by kind and id.
    known: HashMap<(&'static str, String), usize>,
    metadata: Map<String, Value>,
    out: Vec<Output>,
}

impl Message {
    pub(super) fn new(turn: TurnNo) -> Self {
        Self {
            turn,
            guard: Guard::new(),
            parts: Vec::new(),
            known: HashMap::new(),
            metadata: Map::new(),
            out: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, part: &StoredPart) {
        let text = String::from_utf8_lossy(&part.bytes);
        let Some(head) = ChunkHead::read(&text) else {
            return;
        };
        let mut out = std::mem::take(&mut self.out);
        self.guard
            .push(self.turn, Place::Earlier, &head, &part.bytes, &mut out);
        for output in out.drain(..) {
            match output {
                Output::Verbatim => self.chunk(&part.bytes),
                Output::Written(bytes) => self.chunk(&bytes),
            }
        }
        self.out = out;
    }

    /// The message's parts and metadata.
    pub(super) fn end(mut self, row: &TurnRow) -> (Vec<Value>, Map<String, Value>) {
        let mut out = Vec::new();
        self.guard.end(&mut out);
        for output in out {
            if let Output::Written(bytes) = output {
                self.chunk(&bytes);
            }
        }
        if row.verdict == Verdict::Truncated {
            let mut data =
                json!({"turn": row.turn, "reason": row.reason, "stored": row.stored_parts});
            if let Some(expected) = row.expected_parts {
                data["expected"] = expected.into();
            }
            self.parts
                .push(json!({"type": "data-bex-incomplete", "data": data}));
        }
        self.metadata.insert("turn".into(), json!(row.turn));
        self.metadata.insert("verdict".into(), json!(row.verdict));
        (self.parts, self.metadata)
    }

    fn chunk(&mut self, bytes: &[u8]) {
        let Ok(Value::Object(mut chunk)) = serde_json::from_slice(bytes) else {
            // a lone surrogate, or a number that is none: no message can hold it
            return;
        };
        let Some(kind) = text(&mut chunk, "type") else {
            return;
        };
        match kind.as_str() {
            "text-start" => self.begin("text", &mut chunk),
            "reasoning-start" => self.begin("reasoning", &mut chunk),
            "text-delta" => self.speak("text", &mut chunk),
            "reasoning-delta" => self.speak("reasoning", &mut chunk),
            "start-step" => self.parts.push(json!({"type": "step-start"})),
            "tool-input-start" | "tool-input-available" | "tool-input-error" => {
                self.call(&kind, &mut chunk);
            }
            "tool-output-available" | "tool-output-error" => self.answer(&kind, &mut chunk),
            "message-metadata" => {
                if let Some(Value::Object(metadata)) = chunk.remove("messageMetadata") {
                    self.metadata.extend(metadata);
                }
            }
            "source-url" | "source-document" | "file" => {
                chunk.shift_insert(0, "type".into(), kind.into());
                self.parts.push(Value::Object(chunk));
            }
            data if data.starts_with("data-") => self.data(kind, chunk),
            _ => {}
        }
    }

    fn begin(&mut self, kind: &'static str, chunk: &mut Map<String, Value>) {
        let Some(id) = text(chunk, "id") else { return };
        self.known.insert((kind, id), self.parts.len());
        let mut part = json!({"type": kind, "text": "", "state": "done"});
        if let Some(metadata) = chunk.remove("providerMetadata") {
            part["providerMetadata"] = metadata;
        }
        self.parts.push(part);
    }

    fn speak(&mut self, kind: &'static str, chunk: &mut Map<String, Value>) {
        let (Some(id), Some(delta)) = (text(chunk, "id"), text(chunk, "delta")) else {
            return;
        };
        let at = self.known.get(&(kind, id)).copied();
        if let Some(Value::String(said)) = at.and_then(|at| self.parts[at].get_mut("text")) {
            said.push_str(&delta);
        }
    }

    fn call(&mut self, kind: &str, chunk: &mut Map<String, Value>) {
        let Some(id) = text(chunk, "toolCallId") else {
            return;
        };
        let key = ("tool", id.clone());
        let open = self.known.get(&key).copied().filter(|at| {
            matches!(
                self.parts[*at]["state"].as_str(),
                Some("input-streaming" | "input-available")
            )
        });
        let at = open.unwrap_or_else(|| {
            let name = text(chunk, "toolName").unwrap_or_default();
            let part = if chunk.get("dynamic") == Some(&Value::Bool(true)) {
                json!({"type": "dynamic-tool", "toolName": name, "toolCallId": id})
            } else {
                json!({"type": format!("tool-{name}"), "toolCallId": id})
            };
            self.parts.push(part);
            self.parts.len() - 1
        });
        self.known.insert(key, at);
        let part = &mut self.parts[at];
        part["state"] = match kind {
            "tool-input-start" => "input-streaming",
            "tool-input-available" => "input-available",
            _ => "output-error",
        }
        .into();
        for (from, to) in [
            ("input", "input"),
            ("title", "title"),
            ("errorText", "errorText"),
            ("providerMetadata", "callProviderMetadata"),
        ] {
            if let Some(value) = chunk.remove(from) {
                part[to] = value;
            }
        }
    }

    fn answer(&mut self, kind: &str, chunk: &mut Map<String, Value>) {
        let Some(id) = text(chunk, "toolCallId") else {
            return;
        };
        let Some(at) = self.known.get(&("tool", id)).copied() else {
            return;
        };
        let part = &mut self.parts[at];
        part["state"] = if kind == "tool-output-available" {
            "output-available".into()
        } else {
            "output-error".into()
        };
        for field in ["output", "errorText"] {
            if let Some(value) = chunk.remove(field) {
                part[field] = value;
            }
        }
    }

    fn data(&mut self, kind: String, mut chunk: Map<String, Value>) {
        if chunk.get("transient") == Some(&Value::Bool(true)) {
            return;
        }
        let data = chunk.remove("data").unwrap_or_default();
        let Some(id) = text(&mut chunk, "id") else {
            self.parts.push(json!({"type": kind, "data": data}));
            return;
        };
        let key = ("data", format!("{kind} {id}"));
        match self.known.get(&key) {
            Some(at) => self.parts[*at]["data"] = data,
            None => {
                self.known.insert(key, self.parts.len());
                self.parts
                    .push(json!({"type": kind, "id": id, "data": data}));
            }
        }
    }
}

fn text(chunk: &mut Map<String, Value>, field: &str) -> Option<String> {
    match chunk.get_mut(field)? {
        Value::String(text) => Some(std::mem::take(text)),
        _ => None,
    }
}
