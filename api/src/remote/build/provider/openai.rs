//! OpenAI's `message` shapes: items of the Responses form, and messages of the chat form.

use bex_proto::message::Block;
use serde_json::Value;

use super::{Message, Object, Said, call, clean, owned, result, text_block, text_of};

pub fn read(object: &Object) -> Option<Vec<Said>> {
    let blocks = match text_of(object, "type") {
        Some("message") => message(object),
        Some("function_call" | "custom_tool_call" | "local_shell_call") => vec![called(object)],
        Some("function_call_output" | "custom_tool_call_output") => vec![result(
            text_of(object, "call_id").unwrap_or_default(),
            object.get("output").cloned().unwrap_or(Value::Null),
            false,
        )],
        Some("reasoning") => reasoning(object),
        None if object.contains_key("role") => message(object),
        _ => return None,
    };
    if blocks.is_empty() {
        return Some(Vec::new());
    }
    Some(vec![Said::Blocks(Message {
        id: owned(object, "id"),
        event: None,
        model: owned(object, "model"),
        blocks,
    })])
}

/// Only the assistant's words are the agent's, and its tools' answers.
fn message(object: &Object) -> Vec<Block> {
    match text_of(object, "role") {
        Some("assistant") => {}
        Some("tool") => {
            let content = object.get("content").cloned().unwrap_or(Value::Null);
            let id = text_of(object, "tool_call_id").unwrap_or_default();
            return vec![result(id, content, false)];
        }
        _ => return Vec::new(),
    }
    let mut blocks = match object.get("content") {
        Some(Value::String(text)) if !text.is_empty() => vec![text_block(text)],
        Some(Value::Array(parts)) => parts.iter().filter_map(part).collect(),
        _ => Vec::new(),
    };
    if let Some(Value::Array(calls)) = object.get("tool_calls") {
        blocks.extend(calls.iter().filter_map(chat_call));
    }
    blocks
}

fn part(value: &Value) -> Option<Block> {
    let part = value.as_object()?;
    match text_of(part, "type")? {
        "output_text" | "text" => Some(text_block(text_of(part, "text")?)),
        "refusal" => Some(text_block(text_of(part, "refusal")?)),
        "tool_use" => Some(call(
            text_of(part, "id").unwrap_or_default(),
            text_of(part, "name").unwrap_or_default(),
            part.get("input").cloned().unwrap_or(Value::Null),
        )),
        "thinking" => Some(super::thinking(text_of(part, "thinking")?)),
        _ => None,
    }
}

fn chat_call(value: &Value) -> Option<Block> {
    let function = value.get("function")?.as_object()?;
    let id = value.get("id").and_then(Value::as_str).unwrap_or_default();
    let name = text_of(function, "name").unwrap_or_default();
    Some(call(id, name, arguments(function.get("arguments"))))
}

fn called(object: &Object) -> Block {
    let name = text_of(object, "name").or_else(|| text_of(object, "type"));
    let input = object
        .get("arguments")
        .or_else(|| object.get("input"))
        .or_else(|| object.get("action"));
    call(
        text_of(object, "call_id").unwrap_or_default(),
        name.unwrap_or_default(),
        arguments(input),
    )
}

/// Arguments come as JSON in a string; what is none stays a string.
fn arguments(value: Option<&Value>) -> Value {
    match value {
        Some(Value::String(text)) => {
            serde_json::from_str(text).unwrap_or_else(|_| Value::String(clean(text)))
        }
        Some(value) => value.clone(),
        None => Value::Null,
    }
}

fn reasoning(object: &Object) -> Vec<Block> {
    let Some(Value::Array(summary)) = object.get("summary") else {
        return Vec::new();
    };
    let texts = summary.iter().filter_map(|part| part.get("text")?.as_str());
    texts
        .map(|text| Block::Reasoning { text: clean(text) })
        .collect()
}
