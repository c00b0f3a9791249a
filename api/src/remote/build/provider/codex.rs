//! Codex: events of `codex exec --json`, and the lines of its rollout files, which hold OpenAI's items.
//!
//! Items of a run are numbered from 0 again when the conversation is resumed, so that their ids name nothing beyond the run; a turn of such
//! items is named as a whole.

use bex_proto::message::{Block, TerminalReason};
use serde_json::{Value, json};

use super::super::json::{Object, any, inner, text};
use super::{End, Message, Names, Said, blocks, call, openai, owned, result, text_block, thinking};

pub fn read(object: &Object) -> Option<Vec<Said>> {
    let payload = || inner(object, "payload");
    Some(match text(object, "type")? {
        "thread.started" => {
            let conversation = owned(object, "thread_id");
            vec![
                Said::Begin(conversation.clone()),
                Said::About {
                    conversation,
                    model: None,
                },
            ]
        }
        "turn.completed" => vec![Said::End(End {
            reason: TerminalReason::Result,
            cost: object.get("usage").map(Value::to_string),
        })],
        "turn.failed" => vec![Said::End(End::from(TerminalReason::Error))],
        "item.started" | "item.updated" => item(object).map(Said::Unfinished).into_iter().collect(),
        "item.completed" => item(object).map(blocks).unwrap_or_default(),
        "session_meta" => vec![Said::Begin(
            payload().and_then(|payload| owned(payload, "id")),
        )],
        "response_item" => payload().and_then(openai::read).unwrap_or_default(),
        "event_msg" => payload().and_then(event).into_iter().collect(),
        "turn_context" => vec![Said::About {
            conversation: None,
            model: payload().and_then(|payload| owned(payload, "model")),
        }],
        "turn.started" | "error" | "compacted" => Vec::new(),
        _ => return None,
    })
}

/// A rollout says when a turn was over or was aborted; its texts stand in the items.
fn event(payload: &Object) -> Option<Said> {
    let reason = match text(payload, "type")? {
        "task_complete" | "turn_complete" => TerminalReason::Result,
        "turn_aborted" => TerminalReason::Aborted,
        _ => return None,
    };
    Some(Said::End(End::from(reason)))
}

fn item(object: &Object) -> Option<Message> {
    let item = inner(object, "item")?;
    Some(Message {
        id: owned(item, "id"),
        names: Names::OfRun,
        model: None,
        blocks: said(item)?,
    })
}

/// An error item is the program's own word, and stays in the log.
fn said(item: &Object) -> Option<Vec<Block>> {
    // older releases said `item_type`
    let kind = text(item, "type").or_else(|| text(item, "item_type"))?;
    let id = text(item, "id").unwrap_or_default();
    let tool = |name: &str, input: Value| call(id, name, input);
    Some(match kind {
        "agent_message" | "assistant_message" => vec![text_block(text(item, "text")?)],
        "reasoning" => vec![thinking(text(item, "text")?)],
        "command_execution" => {
            let called = tool(kind, json!({"command": item.get("command")}));
            answered(item, called, id, any(item, "aggregated_output"))
        }
        "file_change" => {
            let called = tool(kind, json!({"changes": item.get("changes")}));
            answered(item, called, id, any(item, "status"))
        }
        "mcp_tool_call" => {
            let of = |field| text(item, field).unwrap_or_default();
            let name = format!("{}.{}", of("server"), of("tool"));
            let answer = ["error", "result"].iter().find_map(|field| {
                let answer = item.get(*field);
                answer.filter(|answer| !answer.is_null()).cloned()
            });
            let called = tool(&name, any(item, "arguments"));
            answered(item, called, id, answer.unwrap_or(Value::Null))
        }
        "collab_tool_call" => {
            let called = tool(
                text(item, "tool").unwrap_or(kind),
                json!({"prompt": item.get("prompt")}),
            );
            answered(item, called, id, any(item, "agents_states"))
        }
        "web_search" => vec![tool(kind, json!({"query": item.get("query")}))],
        "todo_list" => vec![tool(kind, json!({"items": item.get("items")}))],
        _ => return None,
    })
}

/// A call, and its answer once there is one.
fn answered(item: &Object, called: Block, id: &str, answer: Value) -> Vec<Block> {
    let status = text(item, "status").unwrap_or_default();
    if status == "in_progress" {
        return vec![called];
    }
    let code = item.get("exit_code").and_then(Value::as_i64);
    let failed = matches!(status, "failed" | "declined") || code.is_some_and(|code| code != 0);
    vec![called, result(id, answer, failed)]
}
