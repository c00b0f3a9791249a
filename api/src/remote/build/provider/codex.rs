//! Codex: events of `codex exec --json`, and the lines of its rollout files, which hold OpenAI's items.

use bex_proto::message::{Block, TerminalReason};
use serde_json::{Value, json};

use super::{Message, Object, Said, call, openai, owned, result, text_block, text_of, thinking};

pub fn read(object: &Object) -> Option<Vec<Said>> {
    let said = match text_of(object, "type")? {
        "thread.started" => owned(object, "thread_id")
            .map(Said::Session)
            .into_iter()
            .collect(),
        "turn.completed" => vec![Said::End(TerminalReason::Result)],
        "turn.failed" => vec![Said::End(TerminalReason::Error)],
        "item.completed" => item(object),
        "turn.started" | "item.started" | "item.updated" | "error" => Vec::new(),
        "session_meta" => {
            let payload = object.get("payload").and_then(Value::as_object);
            let id = payload.and_then(|payload| owned(payload, "id"));
            id.map(Said::Session).into_iter().collect()
        }
        "response_item" => {
            let payload = object.get("payload").and_then(Value::as_object);
            payload.and_then(openai::read).unwrap_or_default()
        }
        "event_msg" => event_msg(object),
        "turn_context" | "compacted" => Vec::new(),
        _ => return None,
    };
    Some(said)
}

/// A rollout says when a turn was over or was aborted; its texts stand in the items.
fn event_msg(object: &Object) -> Vec<Said> {
    let payload = object.get("payload").and_then(Value::as_object);
    match payload.and_then(|payload| text_of(payload, "type")) {
        Some("task_complete") => vec![Said::End(TerminalReason::Result)],
        Some("turn_aborted") => vec![Said::End(TerminalReason::Aborted)],
        _ => Vec::new(),
    }
}

fn item(object: &Object) -> Vec<Said> {
    let Some(item) = object.get("item").and_then(Value::as_object) else {
        return Vec::new();
    };
    // numbered anew with every run, so that they name nothing beyond it
    let blocks = blocks(item).unwrap_or_default();
    if blocks.is_empty() {
        return Vec::new();
    }
    vec![Said::Blocks(Message {
        blocks,
        ..Message::default()
    })]
}

fn blocks(item: &Object) -> Option<Vec<Block>> {
    // older releases said `item_type`
    let kind = text_of(item, "type").or_else(|| text_of(item, "item_type"))?;
    let id = text_of(item, "id").unwrap_or_default();
    let failed = text_of(item, "status") == Some("failed");
    Some(
        match kind {
            "agent_message" | "assistant_message" => vec![text_block(text_of(item, "text")?)],
            "reasoning" => vec![thinking(text_of(item, "text")?)],
            "command_execution" => {
                let code = item.get("exit_code").and_then(Value::as_i64);
                let input = json!({"command": item.get("command")});
                let output = item
                    .get("aggregated_output")
                    .cloned()
                    .unwrap_or(Value::Null);
                let bad = failed || code.is_some_and(|code| code != 0);
                vec![
                    call("", "command_execution", input),
                    result("", output, bad),
                ]
            }
            "file_change" => vec![call(
                "",
                "file_change",
                json!({"changes": item.get("changes")}),
            )],
            "mcp_tool_call" => {
                let server = text_of(item, "server").unwrap_or_default();
                let tool = text_of(item, "tool").unwrap_or_default();
                let input = item.get("arguments").cloned().unwrap_or(Value::Null);
                let answer = item.get("result").or_else(|| item.get("error"));
                let answer = answer.cloned().unwrap_or(Value::Null);
                let name = format!("{server}.{tool}");
                vec![call("", &name, input), result("", answer, failed)]
            }
            "web_search" => vec![call("", "web_search", json!({"query": item.get("query")}))],
            "todo_list" => vec![call("", "todo_list", json!({"items": item.get("items")}))],
            _ => return None,
        }
        .into_iter()
        .map(|block| identified(block, id))
        .collect(),
    )
}

/// Calls are named as in the program's own events.
fn identified(block: Block, item: &str) -> Block {
    match block {
        Block::ToolUse {
            name,
            input,
            partial,
            ..
        } => Block::ToolUse {
            id: item.to_owned(),
            name,
            input,
            partial,
        },
        Block::ToolResult {
            content, is_error, ..
        } => Block::ToolResult {
            tool_use_id: item.to_owned(),
            content,
            is_error,
        },
        other => other,
    }
}
