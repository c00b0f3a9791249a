//! OpenAI's `message` shapes: items of the Responses form, and messages of the chat form.

use bex_proto::message::Block;
use serde_json::Value;

use super::super::json::{self, Object, any, text};
use super::{Message, Names, Said, blocks, call, claude, owned, result, text_block, thinking};

pub fn read(object: &Object) -> Option<Vec<Said>> {
    let kind = text(object, "type");
    let said = match kind {
        Some("message") => message(object),
        Some("function_call" | "custom_tool_call" | "local_shell_call" | "web_search_call") => {
            vec![called(object)]
        }
        Some("function_call_output" | "custom_tool_call_output") => vec![answered(object)],
        Some("reasoning") => reasoning(object),
        None if object.contains_key("role") => message(object),
        _ => return None,
    };
    let id = owned(object, "id").filter(|id| !id.is_empty());
    // some that speak the chat form count their calls anew in every message
    let names = match kind.is_none() && id.is_none() {
        true => Names::OfRun,
        false => Names::ForEver,
    };
    Some(blocks(Message {
        id,
        names,
        model: owned(object, "model"),
        blocks: said,
    }))
}

/// Only the assistant's words are the agent's, and its tools' answers.
fn message(object: &Object) -> Vec<Block> {
    match text(object, "role") {
        Some("assistant") => {}
        Some("tool") => {
            let id = text(object, "tool_call_id").unwrap_or_default();
            return vec![result(id, any(object, "content"), false)];
        }
        _ => return Vec::new(),
    }
    let mut said: Vec<Block> = match object.get("content") {
        Some(Value::String(words)) => vec![text_block(words)],
        Some(Value::Array(parts)) => parts.iter().filter_map(part).collect(),
        _ => Vec::new(),
    };
    if let Some(Value::Array(calls)) = object.get("tool_calls") {
        said.extend(calls.iter().filter_map(chat_call));
    }
    said
}

fn part(value: &Value) -> Option<Block> {
    let part = value.as_object()?;
    match text(part, "type")? {
        "output_text" => Some(text_block(text(part, "text")?)),
        "refusal" => Some(text_block(text(part, "refusal")?)),
        "reasoning" => Some(thinking(text(part, "text")?)),
        _ => claude::block(value),
    }
}

fn chat_call(value: &Value) -> Option<Block> {
    let function = json::inner(value.as_object()?, "function")?;
    let id = value.get("id").and_then(Value::as_str).unwrap_or_default();
    let name = text(function, "name").unwrap_or_default();
    Some(call(id, name, arguments(function.get("arguments"))))
}

fn called(object: &Object) -> Block {
    let id = text(object, "call_id").or_else(|| text(object, "id"));
    let name = text(object, "name").or_else(|| text(object, "type"));
    let input = ["arguments", "input", "action"]
        .iter()
        .find_map(|field| object.get(*field));
    call(
        id.unwrap_or_default(),
        name.unwrap_or_default(),
        arguments(input),
    )
}

fn answered(object: &Object) -> Block {
    let output = any(object, "output");
    let failed = output.get("success").and_then(Value::as_bool) == Some(false);
    result(text(object, "call_id").unwrap_or_default(), output, failed)
}

/// Arguments come as JSON in a string; what is none stays a string.
fn arguments(value: Option<&Value>) -> Value {
    match value {
        Some(Value::String(text)) => json::in_text(text),
        Some(value) => value.clone(),
        None => Value::Null,
    }
}

/// What was thought, word by word where it is told, and its summary.
fn reasoning(object: &Object) -> Vec<Block> {
    let texts = |field: &str| {
        let parts = object.get(field).and_then(Value::as_array);
        let parts = parts.into_iter().flatten();
        parts.filter_map(|part| Some(part.get("text")?.as_str()?.to_owned()))
    };
    let summary = texts("summary").map(|text| Block::Reasoning { text });
    let words = texts("content").map(|text| thinking(&text));
    summary.chain(words).collect()
}
