//! A builder's promises, from recordings (see `testdata/README.md`) and from lines made for one situation each.

mod claude;
mod codex;
mod events;
mod openai;
mod parts;
mod pieces;
mod records;
mod table;

use bex_proto::message::{Block, Gap, TerminalReason};
use bex_proto::remote::OutputStream;
use bex_proto::session::SessionKind;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

const TEXT: &str = include_str!("testdata/claude-text.ndjson");
const KINDS: &str = include_str!("testdata/claude-kinds.ndjson");
const PARTIAL: &str = include_str!("testdata/claude-partial.ndjson");
const SUB_AGENT: &str = include_str!("testdata/claude-sub-agent.ndjson");
const RECORD: &str = include_str!("testdata/claude-record.jsonl");
const EDGE_CASES: &str = include_str!("testdata/claude-record-edge-cases.jsonl");
const CODEX: &str = include_str!("testdata/codex-exec.ndjson");
const RESUMED: &str = include_str!("testdata/codex-resumed.ndjson");
const ROLLOUT: &str = include_str!("testdata/codex-rollout.jsonl");
const OPENAI: &str = include_str!("testdata/openai.ndjson");

fn event(index: u64, data: &str) -> LogEvent<'_> {
    LogEvent {
        index,
        stream: OutputStream::Stdout,
        data,
        complete: false,
        at: Timestamp::from_second(i64::try_from(index).expect("small")).expect("a time"),
    }
}

fn last(index: u64) -> LogEvent<'static> {
    LogEvent {
        complete: true,
        ..event(index, "")
    }
}

fn run(events: &[LogEvent<'_>]) -> Vec<Built> {
    let mut builder = Builder::new(Cursor::default());
    let mut out = Vec::new();
    for event in events {
        builder.event(event, &mut out);
    }
    out
}

/// Turns of an output of this text, whose program then ends.
fn recorded(text: &str) -> Vec<BuiltTurn> {
    turns(run(&[event(0, text), last(1)]))
}

/// Turns of these lines in an event each, and of the end of their program.
fn ended(lines: &[Value]) -> Vec<BuiltTurn> {
    let texts: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
    let mut events: Vec<LogEvent<'_>> = texts.iter().zip(0..).map(|(t, n)| event(n, t)).collect();
    events.push(last(texts.len() as u64));
    turns(run(&events))
}

fn turns(built: Vec<Built>) -> Vec<BuiltTurn> {
    let turns = built.into_iter().filter_map(|one| match one {
        Built::Turn(turn) => Some(turn),
        Built::System(_) | Built::CliSession(_) => None,
    });
    turns.collect()
}

fn blocks(turn: &BuiltTurn) -> Vec<Block> {
    turn.blocks.iter().map(|b| b.block.clone()).collect()
}

fn origins(turn: &BuiltTurn) -> Vec<Option<&str>> {
    turn.blocks.iter().map(|b| b.origin.as_deref()).collect()
}

fn kinds(blocks: &[Block]) -> Vec<&'static str> {
    let kind = |block: &Block| match block {
        Block::Text { .. } => "text",
        Block::Thinking { .. } => "thinking",
        Block::Reasoning { .. } => "reasoning",
        Block::ToolUse { .. } => "tool_use",
        Block::ToolResult { .. } => "tool_result",
    };
    blocks.iter().map(kind).collect()
}

/// What a person is told: the text, and the kinds of its blocks.
fn interactive(turn: &BuiltTurn) -> Option<(String, Vec<&'static str>)> {
    let told = told(SessionKind::Interactive, &blocks(turn))?;
    Some((told.visible_text, kinds(&told.blocks)))
}

/// What a workflow keeps.
fn autonomous(turn: &BuiltTurn) -> Option<(String, Vec<&'static str>)> {
    let told = told(SessionKind::Autonomous, &blocks(turn))?;
    Some((told.visible_text, kinds(&told.blocks)))
}

fn some(text: &str, kinds: &[&'static str]) -> Option<(String, Vec<&'static str>)> {
    Some((text.to_owned(), kinds.to_vec()))
}

fn said(text: &str) -> Block {
    Block::Text {
        text: text.to_owned(),
        partial: false,
    }
}

fn half_said(text: &str) -> Block {
    Block::Text {
        text: text.to_owned(),
        partial: true,
    }
}

fn assistant(block: Value) -> Value {
    json!({"type": "assistant", "message": {"id": "msg_1", "role": "assistant", "model": "m", "content": [block]}})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn tool() -> Value {
    json!({"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}})
}

fn answer() -> Value {
    json!({"type": "user", "message": {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1", "content": "a", "is_error": true}]}})
}

fn result() -> Value {
    json!({"type": "result", "subtype": "success", "is_error": false})
}

/// A line of a recording.
fn line(recording: &str, number: usize) -> Value {
    let line = recording.lines().nth(number).expect("a line");
    serde_json::from_str(line).expect("a recording is JSON")
}
