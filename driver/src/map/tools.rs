//! Tool calls of one turn.

use std::collections::HashMap;

use agent_client_protocol::v1::schema::{
    ToolCall, ToolCallContent, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use bex_proto::ids::TurnNo;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::text_of;

/// Tool calls remembered at once. A turn has fewer; beyond, the oldest knowledge is not worth keeping and calls start anew.
const MAX_CALLS: usize = 10_000;

#[derive(Debug)]
pub struct Tools {
    turn: TurnNo,
    calls: HashMap<String, Call>,
}

#[derive(Debug, Default)]
struct Call {
    name: String,
    title: Option<String>,
    input_said: bool,
    is_over: bool,
    content: Vec<ToolCallContent>,
    raw_output: Option<Value>,
    /// Diffs and terminals as they were last said, by id.
    said: HashMap<String, Value>,
}

impl Tools {
    pub fn new(turn: TurnNo) -> Self {
        Self {
            turn,
            calls: HashMap::new(),
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
            self.calls.remove(&id);
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
            self.calls.insert(id.to_owned(), call);
        }
        if let Some(call) = self.calls.get_mut(id) {
            call.apply(&shown_id, fields, now, out);
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
        if let Some(content) = fields.content {
            self.content = content;
        }
        if fields.raw_output.is_some() {
            self.raw_output = fields.raw_output;
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
        self.say_artefacts(id, out);
        if self.is_over {
            return;
        }
        match fields.status {
            Some(ToolCallStatus::Completed) => {
                self.is_over = true;
                out.push(json!({
                    "type": "tool-output-available",
                    "toolCallId": id,
                    "output": self.output(),
                    "dynamic": true,
                    "providerExecuted": true,
                }));
            }
            Some(ToolCallStatus::Failed) => {
                self.is_over = true;
                out.push(json!({
                    "type": "tool-output-error",
                    "toolCallId": id,
                    "errorText": self.error_text(),
                    "dynamic": true,
                    "providerExecuted": true,
                }));
            }
            _ => {}
        }
    }

    /// Diffs and terminals, each when it is new or changed.
    fn say_artefacts(&mut self, id: &str, out: &mut Vec<Value>) {
        for (position, content) in self.content.iter().enumerate() {
            let part = match content {
                ToolCallContent::Diff(diff) => json!({
                    "type": "data-acp-diff",
                    "id": format!("{id}-diff-{position}"),
                    "data": {"toolCallId": id, "path": diff.path, "oldText": diff.old_text, "newText": diff.new_text},
                }),
                ToolCallContent::Terminal(terminal) => json!({
                    "type": "data-acp-terminal",
                    "id": format!("{id}-terminal-{position}"),
                    "data": {"toolCallId": id, "terminalId": terminal.terminal_id},
                }),
                _ => continue,
            };
            let key = part["id"].as_str().unwrap_or_default().to_owned();
            if self.said.get(&key) != Some(&part) {
                self.said.insert(key, part.clone());
                out.push(part);
            }
        }
    }

    fn texts(&self) -> String {
        let texts: Vec<&str> = self
            .content
            .iter()
            .filter_map(|content| match content {
                ToolCallContent::Content(block) => text_of(&block.content),
                _ => None,
            })
            .collect();
        texts.join("\n")
    }

    fn output(&self) -> Value {
        match (&self.raw_output, self.texts()) {
            (Some(raw), text) if text.is_empty() => raw.clone(),
            (Some(raw), text) => json!({"rawOutput": raw, "content": text}),
            (None, text) if text.is_empty() => Value::Null,
            (None, text) => Value::String(text),
        }
    }

    fn error_text(&self) -> String {
        match (&self.raw_output, self.texts()) {
            (_, text) if !text.is_empty() => text,
            (Some(Value::String(raw)), _) => raw.clone(),
            (Some(raw), _) => raw.to_string(),
            (None, _) => "the tool failed".to_owned(),
        }
    }
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
