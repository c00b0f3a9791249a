//! Claude's stream-json, and programs that speak it. Real traffic has one block an event; with partial messages the pieces come first and
//! the blocks again whole.

use bex_proto::message::{Block, TerminalReason};
use serde_json::Value;

use super::{
    Delta, Message, Object, Said, Started, call, clean, owned, result, text_block, text_of,
    thinking,
};

pub fn read(object: &Object) -> Option<Vec<Said>> {
    match text_of(object, "type")? {
        "assistant" => Some(assistant(object)),
        "user" => Some(user(object)),
        "system" => Some(system(object)),
        "result" => Some(vec![Said::End(reason(object))]),
        "stream_event" => Some(stream_event(object)),
        _ => None,
    }
}

/// A sub-agent's words are no words of this turn: what it did comes back as its call's result.
fn is_sub_agent(object: &Object) -> bool {
    object
        .get("parent_tool_use_id")
        .is_some_and(|parent| !parent.is_null())
}

fn assistant(object: &Object) -> Vec<Said> {
    let Some(message) = object.get("message").and_then(Value::as_object) else {
        return Vec::new();
    };
    if is_sub_agent(object) {
        return Vec::new();
    }
    let blocks = match message.get("content") {
        Some(Value::String(text)) => vec![text_block(text)],
        Some(Value::Array(blocks)) => blocks.iter().filter_map(block).collect(),
        _ => Vec::new(),
    };
    if blocks.is_empty() {
        return Vec::new();
    }
    vec![Said::Blocks(Message {
        id: owned(message, "id"),
        event: owned(object, "uuid"),
        model: owned(message, "model"),
        blocks,
    })]
}

fn block(value: &Value) -> Option<Block> {
    let object = value.as_object()?;
    match text_of(object, "type")? {
        "text" => Some(text_block(text_of(object, "text")?)),
        "thinking" => Some(thinking(text_of(object, "thinking")?)),
        "tool_use" | "server_tool_use" => Some(call(
            text_of(object, "id").unwrap_or_default(),
            text_of(object, "name").unwrap_or_default(),
            object.get("input").cloned().unwrap_or(Value::Null),
        )),
        "tool_result" => Some(tool_result(object)),
        _ => None,
    }
}

fn tool_result(object: &Object) -> Block {
    result(
        text_of(object, "tool_use_id").unwrap_or_default(),
        object.get("content").cloned().unwrap_or(Value::Null),
        object.get("is_error").and_then(Value::as_bool) == Some(true),
    )
}

/// Of what the user's side says only the tools' answers are of the agent's turn.
fn user(object: &Object) -> Vec<Said> {
    if is_sub_agent(object) {
        return Vec::new();
    }
    let content = object
        .get("message")
        .and_then(|message| message.get("content"));
    let Some(Value::Array(blocks)) = content else {
        return Vec::new();
    };
    let results = blocks.iter().filter_map(|value| {
        let block = value.as_object()?;
        (text_of(block, "type")? == "tool_result").then(|| tool_result(block))
    });
    let blocks: Vec<Block> = results.collect();
    if blocks.is_empty() {
        return Vec::new();
    }
    vec![Said::Blocks(Message {
        event: owned(object, "uuid"),
        blocks,
        ..Message::default()
    })]
}

/// A start says whose session it is and is no message; what else the program says of itself is one, where it says something.
fn system(object: &Object) -> Vec<Said> {
    let subtype = text_of(object, "subtype").unwrap_or_default();
    if matches!(subtype, "init" | "initialized") {
        let session = owned(object, "session_id").filter(|id| !id.is_empty());
        return session.map(Said::Session).into_iter().collect();
    }
    let said = ["content", "message"].iter().find_map(|field| {
        object
            .get(*field)
            .map(shown)
            .filter(|text| !text.trim().is_empty())
    });
    said.map(Said::System).into_iter().collect()
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => clean(text),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn reason(object: &Object) -> TerminalReason {
    let failed = object.get("is_error").and_then(Value::as_bool) == Some(true)
        || text_of(object, "subtype").is_some_and(|subtype| subtype.starts_with("error"));
    match failed {
        true => TerminalReason::Error,
        false => TerminalReason::Result,
    }
}

fn stream_event(object: &Object) -> Vec<Said> {
    if is_sub_agent(object) {
        return Vec::new();
    }
    let event = object.get("event").and_then(Value::as_object);
    event
        .and_then(delta)
        .map(Said::Partial)
        .into_iter()
        .collect()
}

fn delta(event: &Object) -> Option<Delta> {
    let index = || event.get("index")?.as_u64();
    match text_of(event, "type")? {
        "message_start" => {
            let message = event.get("message")?.as_object()?;
            Some(Delta::Message {
                id: owned(message, "id")?,
                model: owned(message, "model"),
            })
        }
        "content_block_start" => {
            let block = event.get("content_block")?.as_object()?;
            let started = match text_of(block, "type")? {
                "text" => Started::Text(owned(block, "text").unwrap_or_default()),
                "thinking" => Started::Thinking(owned(block, "thinking").unwrap_or_default()),
                "tool_use" | "server_tool_use" => Started::ToolUse {
                    id: owned(block, "id").unwrap_or_default(),
                    name: owned(block, "name").unwrap_or_default(),
                    input: String::new(),
                },
                _ => return None,
            };
            Some(Delta::Start {
                index: index()?,
                block: started,
            })
        }
        "content_block_delta" => {
            let delta = event.get("delta")?.as_object()?;
            let field = match text_of(delta, "type")? {
                "text_delta" => "text",
                "thinking_delta" => "thinking",
                "input_json_delta" => "partial_json",
                _ => return None,
            };
            Some(Delta::Text {
                index: index()?,
                text: owned(delta, field)?,
            })
        }
        _ => None,
    }
}
