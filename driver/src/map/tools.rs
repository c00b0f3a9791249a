//! Tool calls of one turn.

use std::collections::HashMap;

use agent_client_protocol::v1::schema::{
    ToolCall, ToolCallContent, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use bex_proto::ids::TurnNo;
use bex_proto::transcript::sha256_hex;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::text_of;
use crate::bounds::TOOL_BYTES;
use crate::json_bytes::json_bytes;

/// Tool calls remembered at once. A turn has fewer; beyond, the oldest knowledge is not worth keeping and calls start anew.
const MAX_CALLS: usize = 10_000;
/// What one entry of [`Call::said`] costs.
const SAID_BYTES: usize = 128;

#[derive(Debug)]
pub struct Tools {
    turn: TurnNo,
    calls: HashMap<String, Call>,
    /// What all calls keep, at most [`TOOL_BYTES`] and one call's.
    kept: usize,
}

/// What is kept of a call is what is not said yet, and digests of what was.
#[derive(Debug, Default)]
struct Call {
    name: String,
    title: Option<String>,
    input_said: bool,
    is_over: bool,
    texts: String,
    raw_output: Option<Value>,
    /// Of `raw_output`, as JSON.
    raw_bytes: usize,
    /// Digests of diffs and terminals as they were last said, by kind and position.
    said: HashMap<(Artefact, usize), String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Artefact {
    Diff,
    Terminal,
}

impl Tools {
    pub fn new(turn: TurnNo) -> Self {
        Self {
            turn,
            calls: HashMap::new(),
            kept: 0,
        }
    }

    pub fn call(&mut self, call: ToolCall, now: Timestamp, out: &mut Vec<Value>) {
        let mut fields = ToolCallUpdateFields::default();
        fields.kind = Some(call.kind);
        fields.status = Some(call.status);
        fields.title = Some(call.title);
        fields.name = call.name;
        fields.content = Some(call.content);
        fields.raw_input = call.raw_input;
        fields.raw_output = call.raw_output;
        let id = call.tool_call_id.0.to_string();
        // the same id again without an end in between is the same call told anew
        if self.calls.get(&id).is_some_and(|known| known.is_over) {
            self.forget(&id);
        }
        self.apply(&id, fields, now, out);
    }

    pub fn update(&mut self, update: ToolCallUpdate, now: Timestamp, out: &mut Vec<Value>) {
        self.apply(&update.tool_call_id.0, update.fields, now, out);
    }

    fn apply(
        &mut self,
        id: &str,
        fields: ToolCallUpdateFields,
        now: Timestamp,
        out: &mut Vec<Value>,
    ) {
        let shown_id = shown_id(self.turn, id);
        if !self.calls.contains_key(id) {
            if self.calls.len() >= MAX_CALLS {
                self.calls.clear();
                self.kept = 0;
            }
            let call = Call {
                name: fields
                    .name
                    .clone()
                    .unwrap_or_else(|| kind_name(fields.kind)),
                title: fields.title.clone(),
                ..Call::default()
            };
            let mut start = json!({
                "type": "tool-input-start",
                "toolCallId": shown_id,
                "toolName": call.name,
                "dynamic": true,
                // the agent ran it: a page must not
                "providerExecuted": true,
            });
            put(&mut start, "title", call.title.clone());
            out.push(start);
            self.kept += call.bytes() + id.len();
            self.calls.insert(id.to_owned(), call);
        }
        if let Some(call) = self.calls.get_mut(id) {
            let before = call.bytes();
            call.apply(&shown_id, fields, now, out);
            self.kept = self.kept + call.bytes() - before;
        }
        if self.kept > TOOL_BYTES {
            self.calls.retain(|known, _| known == id);
            self.kept = self.calls.values().map(|c| c.bytes() + id.len()).sum();
        }
    }

    fn forget(&mut self, id: &str) {
        if let Some(call) = self.calls.remove(id) {
            self.kept -= call.bytes() + id.len();
        }
    }
}

impl Call {
    fn apply(
        &mut self,
        id: &str,
        fields: ToolCallUpdateFields,
        now: Timestamp,
        out: &mut Vec<Value>,
    ) {
        if let Some(title) = fields.title {
            self.title = Some(title);
        }
        if let Some(raw) = fields.raw_output {
            self.raw_bytes = json_bytes(&raw);
            self.raw_output = Some(raw);
        }
        let begun = !matches!(fields.status, None | Some(ToolCallStatus::Pending));
        if !self.input_said && (fields.raw_input.is_some() || begun) {
            self.input_said = true;
            let mut input = json!({
                "type": "tool-input-available",
                "toolCallId": id,
                "toolName": self.name,
                "input": fields.raw_input.unwrap_or_else(|| json!({})),
                "dynamic": true,
                "providerExecuted": true,
                "providerMetadata": {"bex": {"at": bex_proto::time::format(now)}},
            });
            put(&mut input, "title", self.title.clone());
            out.push(input);
        }
        if let Some(content) = &fields.content {
            self.texts = texts(content);
            self.say_artefacts(id, content, out);
        }
        if self.is_over {
            self.close();
            return;
        }
        match fields.status {
            Some(ToolCallStatus::Completed) => {
                out.push(json!({
                    "type": "tool-output-available",
                    "toolCallId": id,
                    "output": self.output(),
                    "dynamic": true,
                    "providerExecuted": true,
                }));
                self.close();
            }
            Some(ToolCallStatus::Failed) => {
                out.push(json!({
                    "type": "tool-output-error",
                    "toolCallId": id,
                    "errorText": self.error_text(),
                    "dynamic": true,
                    "providerExecuted": true,
                }));
                self.close();
            }
            _ => {}
        }
    }

    /// Everything was said.
    fn close(&mut self) {
        self.is_over = true;
        (self.name, self.title) = (String::new(), None);
        self.texts = String::new();
        (self.raw_output, self.raw_bytes) = (None, 0);
    }

    /// What it keeps.
    fn bytes(&self) -> usize {
        self.name.len()
            + self.title.as_ref().map_or(0, String::len)
            + self.texts.len()
            + self.raw_bytes
            + self.said.len() * SAID_BYTES
    }

    /// Diffs and terminals, each when it is new or changed.
    fn say_artefacts(&mut self, id: &str, content: &[ToolCallContent], out: &mut Vec<Value>) {
        for (position, content) in content.iter().enumerate() {
            let (artefact, part) = match content {
                ToolCallContent::Diff(diff) => (
                    Artefact::Diff,
                    json!({
                        "type": "data-acp-diff",
                        "id": format!("{id}-diff-{position}"),
                        "data": {"toolCallId": id, "path": diff.path, "oldText": diff.old_text, "newText": diff.new_text},
                    }),
                ),
                ToolCallContent::Terminal(terminal) => (
                    Artefact::Terminal,
                    json!({
                        "type": "data-acp-terminal",
                        "id": format!("{id}-terminal-{position}"),
                        "data": {"toolCallId": id, "terminalId": terminal.terminal_id},
                    }),
                ),
                _ => continue,
            };
            let digest = sha256_hex(part.to_string().as_bytes());
            let said = self.said.insert((artefact, position), digest.clone());
            if said != Some(digest) {
                out.push(part);
            }
        }
    }

    fn output(&self) -> Value {
        match (&self.raw_output, self.texts.as_str()) {
            (Some(raw), "") => raw.clone(),
            (Some(raw), text) => json!({"rawOutput": raw, "content": text}),
            (None, "") => Value::Null,
            (None, text) => Value::String(text.to_owned()),
        }
    }

    fn error_text(&self) -> String {
        match (&self.raw_output, self.texts.as_str()) {
            (Some(Value::String(raw)), "") => raw.clone(),
            (Some(raw), "") => raw.to_string(),
            (None, "") => "the tool failed".to_owned(),
            (_, text) => text.to_owned(),
        }
    }
}

fn texts(content: &[ToolCallContent]) -> String {
    let texts: Vec<&str> = content
        .iter()
        .filter_map(|content| match content {
            ToolCallContent::Content(block) => text_of(&block.content),
            _ => None,
        })
        .collect();
    texts.join("\n")
}

/// An agent's id of a call as it stands in parts: agents count anew in every life, and a replay shows all turns together.
pub fn shown_id(turn: TurnNo, id: &str) -> String {
    format!("t{turn}-{id}")
}

fn put(part: &mut Value, name: &str, value: Option<String>) {
    if let (Value::Object(fields), Some(value)) = (part, value) {
        fields.insert(name.to_owned(), Value::String(value));
    }
}

/// A tool without a name is named by what it does.
fn kind_name(kind: Option<ToolKind>) -> String {
    let word = kind.and_then(|kind| serde_json::to_value(kind).ok());
    word.as_ref()
        .and_then(Value::as_str)
        .unwrap_or("other")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    fn update(tools: &mut Tools, id: &str, status: Option<&str>) -> Vec<Value> {
        let (text, now) = ("x".repeat(MIB), Timestamp::UNIX_EPOCH);
        let update = json!({
            "toolCallId": id,
            "status": status,
            "title": text,
            "rawOutput": text,
            "content": [
                {"type": "content", "content": {"type": "text", "text": text}},
                {"type": "diff", "path": "/w/a", "oldText": text, "newText": text},
            ],
        });
        let mut out = Vec::new();
        let update = serde_json::from_value(update).expect("an update");
        tools.update(update, now, &mut out);
        out
    }

    #[test]
    fn what_was_said_is_not_kept() {
        let mut tools = Tools::new(TurnNo(1));
        for n in 0..100 {
            update(&mut tools, &format!("c{n}"), Some("completed"));
        }
        assert!(tools.kept < MIB, "{} bytes are kept", tools.kept);
        update(&mut tools, "open", None);
        assert!((3 * MIB..4 * MIB).contains(&tools.kept));
        update(&mut tools, "open", Some("failed"));
        assert!(tools.kept < MIB, "{} bytes are kept", tools.kept);
    }

    #[test]
    fn calls_that_never_end_are_kept_within_the_bound() {
        let mut tools = Tools::new(TurnNo(1));
        let mut most = 0;
        for n in 0..100 {
            update(&mut tools, &format!("c{n}"), None);
            most = most.max(tools.kept);
        }
        assert!((TOOL_BYTES / 2..=TOOL_BYTES).contains(&most), "{most}");
        assert_eq!(
            tools.kept,
            tools
                .calls
                .iter()
                .map(|(id, c)| id.len() + c.bytes())
                .sum::<usize>()
        );
        // the call at hand is known to its end
        let end = update(&mut tools, "c99", Some("completed"));
        assert_eq!(
            end.last().map(|p| &p["type"]),
            Some(&json!("tool-output-available"))
        );
        assert!(end.iter().all(|p| p["type"] != "tool-input-start"));
    }
}
