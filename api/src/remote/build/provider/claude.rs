//! Claude's stream-json, its session records, and programs that speak alike. Real traffic has one block an event; with partial messages the
//! pieces come first and the blocks again whole.
//!
//! What a sub-agent does is part of the turn that called it, as evidence: its calls and their results stand among the turn's, and its words are
//! kept as thinking, since they are said to the agent and not to the reader. They are not streamed.

use bex_proto::message::{Block, TerminalReason};
use serde_json::Value;

use super::super::json::{Object, any, inner, text};
use super::{
    Delta, End, Message, Said, Started, blocks, call, owned, result, text_block, thinking,
};

pub fn read(object: &Object) -> Option<Vec<Said>> {
    match text(object, "type")? {
        "assistant" => Some(assistant(object)),
        "user" => Some(user(object)),
        "system" => Some(system(object)),
        "result" => Some(vec![Said::End(End::from(reason(object)))]),
        "stream_event" => Some(stream_event(object).into_iter().collect()),
        _ => None,
    }
}

fn is_sub_agent(object: &Object) -> bool {
    let parent = object.get("parent_tool_use_id");
    parent.is_some_and(|parent| !parent.is_null()) || is(object, "isSidechain")
}

fn is(object: &Object, field: &str) -> bool {
    object.get(field).and_then(Value::as_bool) == Some(true)
}

fn assistant(object: &Object) -> Vec<Said> {
    let Some(message) = inner(object, "message") else {
        return Vec::new();
    };
    let mut said: Vec<Block> = match message.get("content") {
        Some(Value::String(words)) => vec![text_block(words)],
        Some(Value::Array(content)) => content.iter().filter_map(block).collect(),
        _ => Vec::new(),
    };
    let sub_agent = is_sub_agent(object);
    if sub_agent {
        said = said.into_iter().map(aside).collect();
    }
    let message = Message {
        id: owned(message, "id"),
        model: owned(message, "model").filter(|_| !sub_agent),
        blocks: said,
        ..Message::default()
    };
    match is(object, "is_partial") && message.id.is_some() {
        true => vec![Said::Unfinished(message)],
        false => blocks(message),
    }
}

fn aside(block: Block) -> Block {
    match block {
        Block::Text { text, partial } => Block::Thinking {
            thinking: text,
            partial,
        },
        other => other,
    }
}

/// A block of a message's content, in Claude's form.
pub fn block(value: &Value) -> Option<Block> {
    let object = value.as_object()?;
    match text(object, "type")? {
        "text" => Some(text_block(text(object, "text")?)),
        "thinking" => Some(thinking(text(object, "thinking")?)),
        "tool_use" | "server_tool_use" | "mcp_tool_use" => Some(call(
            text(object, "id").unwrap_or_default(),
            text(object, "name").unwrap_or_default(),
            any(object, "input"),
        )),
        // the provider's own tools answer within the message: `web_search_tool_result` and others
        kind if kind.ends_with("tool_result") => Some(tool_result(object)),
        _ => None,
    }
}

fn tool_result(object: &Object) -> Block {
    result(
        text(object, "tool_use_id").unwrap_or_default(),
        any(object, "content"),
        is(object, "is_error"),
    )
}

/// Of what the user's side says only the tools' answers are of the agent's turn.
fn user(object: &Object) -> Vec<Said> {
    let content = inner(object, "message").and_then(|message| message.get("content"));
    let Some(Value::Array(content)) = content else {
        return Vec::new();
    };
    let results = content.iter().filter_map(|value| {
        let block = value.as_object()?;
        (text(block, "type")? == "tool_result").then(|| tool_result(block))
    });
    blocks(Message {
        blocks: results.collect(),
        ..Message::default()
    })
}

/// A start says whose session it is and is no message; what else the program says of itself is one, where it says something.
fn system(object: &Object) -> Vec<Said> {
    let subtype = text(object, "subtype").unwrap_or_default();
    if matches!(subtype, "init" | "initialized") {
        return vec![Said::Begin(owned(object, "session_id"))];
    }
    let words = ["content", "message"].iter().find_map(|field| {
        let words = object.get(*field).map(shown);
        words.filter(|words| !words.trim().is_empty())
    });
    words.map(Said::System).into_iter().collect()
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn reason(object: &Object) -> TerminalReason {
    let failed = is(object, "is_error")
        || text(object, "subtype").is_some_and(|subtype| subtype.starts_with("error"));
    match failed {
        true => TerminalReason::Error,
        false => TerminalReason::Result,
    }
}

fn stream_event(object: &Object) -> Option<Said> {
    if is_sub_agent(object) {
        return None;
    }
    let event = inner(object, "event")?;
    if text(event, "type")? == "message_start" {
        let message = inner(event, "message")?;
        return Some(Said::Message {
            id: owned(message, "id")?,
            model: owned(message, "model"),
        });
    }
    delta(event).map(Said::Piece)
}

fn delta(event: &Object) -> Option<Delta> {
    let index = || event.get("index")?.as_u64();
    match text(event, "type")? {
        "content_block_start" => Some(Delta::Start {
            index: index()?,
            block: started(inner(event, "content_block")?)?,
        }),
        "content_block_delta" => {
            let delta = inner(event, "delta")?;
            let field = match text(delta, "type")? {
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
        "content_block_stop" => Some(Delta::Stop { index: index()? }),
        "message_stop" => Some(Delta::End),
        _ => None,
    }
}

fn started(block: &Object) -> Option<Started> {
    match text(block, "type")? {
        "text" => Some(Started::Text(owned(block, "text").unwrap_or_default())),
        "thinking" => Some(Started::Thinking(
            owned(block, "thinking").unwrap_or_default(),
        )),
        "tool_use" | "server_tool_use" | "mcp_tool_use" => Some(Started::ToolUse {
            id: owned(block, "id").unwrap_or_default(),
            name: owned(block, "name").unwrap_or_default(),
            input: String::new(),
        }),
        _ => None,
    }
}
