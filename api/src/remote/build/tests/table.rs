//! The contract's table, cell by cell, for both kinds of session.

use super::*;

/// What is said, what a person is told, what a workflow keeps.
type Cell = (
    &'static str,
    Vec<Value>,
    Option<(String, Vec<&'static str>)>,
    Option<(String, Vec<&'static str>)>,
);

fn check(cells: Vec<Cell>) {
    for (name, lines, person, workflow) in cells {
        for (end, reason) in [
            (Some(result()), TerminalReason::Result),
            (None, TerminalReason::ProcessExit),
        ] {
            let mut all = lines.clone();
            all.extend(end);
            let turns = ended(&all);
            assert_eq!(turns.len(), 1, "{name}");
            assert_eq!(turns[0].terminal, reason, "{name}");
            assert_eq!(interactive(&turns[0]), person, "{name}, interactive");
            assert_eq!(autonomous(&turns[0]), workflow, "{name}, autonomous");
        }
    }
}

#[test]
fn recorded_turns_are_told_as_the_table_says() {
    let (call, answered, mixed) = (line(KINDS, 1), line(KINDS, 2), line(KINDS, 6));
    let (words, failing, failed) = (line(RECORD, 1), line(EDGE_CASES, 3), line(EDGE_CASES, 4));
    let lines = |lines: &[&Value]| lines.iter().map(|line| (*line).clone()).collect::<Vec<_>>();
    let help = "I'll help you implement a new feature with proper task management. Let me create a todo list to track our progress.";
    let run = "I'll help you with that. Let me run the command.And also check the git status.";
    let text_and_tools = ["text", "tool_use", "text", "tool_use"];
    check(vec![
        (
            "text",
            lines(&[&line(TEXT, 1)]),
            some("4", &["text"]),
            some("4", &["text"]),
        ),
        (
            "text beside a block of a kind that nobody knows",
            lines(&[&line(KINDS, 4)]),
            some("Processing your request.", &["text"]),
            some("Processing your request.", &["text"]),
        ),
        (
            "text and tools in one event",
            lines(&[&mixed]),
            some(run, &text_and_tools),
            some(run, &text_and_tools),
        ),
        (
            "text and tool in separate events",
            lines(&[&words, &call]),
            some(help, &["text", "tool_use"]),
            some(help, &["text", "tool_use"]),
        ),
        (
            "tool, its result, text",
            lines(&[&call, &answered, &words]),
            some(help, &["tool_use", "text"]),
            some(help, &["tool_use", "tool_result", "text"]),
        ),
        ("tool only", lines(&[&call]), None, some("", &["tool_use"])),
        (
            "tool and its result",
            lines(&[&failing, &failed]),
            None,
            some("", &["tool_use", "tool_result"]),
        ),
        (
            "tool's result only",
            lines(&[&answered]),
            None,
            some("", &["tool_result"]),
        ),
        (
            "thinking only",
            lines(&[&line(PARTIAL, 6)]),
            None,
            some("", &["thinking"]),
        ),
        (
            "the provider's `message`",
            lines(&[&line(OPENAI, 3)]),
            some("It is 7 °C. I cannot say more.", &["text", "text"]),
            some("It is 7 °C. I cannot say more.", &["text", "text"]),
        ),
    ]);
}

#[test]
fn made_turns_are_told_as_the_table_says() {
    let thought = json!({"type": "thinking", "thinking": "hm"});
    let message =
        |content: Value| json!({"type": "message", "role": "assistant", "content": content});
    let chat = json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]});
    let result_within =
        json!([text("hi"), tool(), {"type": "tool_result", "tool_use_id": "t1", "content": "x"}]);
    check(vec![
        (
            "tool, then text",
            vec![assistant(tool()), assistant(text("hi"))],
            some("hi", &["tool_use", "text"]),
            some("hi", &["tool_use", "text"]),
        ),
        (
            "thinking, then text",
            vec![assistant(thought.clone()), assistant(text("hi"))],
            some("hi", &["thinking", "text"]),
            some("hi", &["thinking", "text"]),
        ),
        (
            "result of a tool before any block",
            vec![answer(), assistant(text("hi"))],
            some("hi", &["text"]),
            some("hi", &["tool_result", "text"]),
        ),
        (
            "result of a tool after",
            vec![assistant(text("hi")), answer()],
            some("hi", &["text"]),
            some("hi", &["text", "tool_result"]),
        ),
        (
            "blank text",
            vec![assistant(text(" \n"))],
            None,
            some(" \n", &["text"]),
        ),
        (
            "blank text beside a tool",
            vec![assistant(text(" ")), assistant(tool())],
            None,
            some(" ", &["text", "tool_use"]),
        ),
        (
            "string content",
            vec![json!({"type": "assistant", "message": {"content": "hi"}})],
            some("hi", &["text"]),
            some("hi", &["text"]),
        ),
        (
            "message, string",
            vec![message(json!("hi"))],
            some("hi", &["text"]),
            some("hi", &["text"]),
        ),
        (
            "message, list",
            vec![message(json!([{"type": "output_text", "text": "hi"}]))],
            some("hi", &["text"]),
            some("hi", &["text"]),
        ),
        (
            "message, tool only",
            vec![message(json!([tool()]))],
            None,
            some("", &["tool_use"]),
        ),
        (
            "message with its tool's result",
            vec![message(result_within)],
            some("hi", &["text", "tool_use"]),
            some("hi", &["text", "tool_use", "tool_result"]),
        ),
        (
            "chat form, tool only",
            vec![chat],
            None,
            some("", &["tool_use"]),
        ),
        (
            "joined without anything between",
            vec![assistant(text("a")), assistant(text("b"))],
            some("ab", &["text", "text"]),
            some("ab", &["text", "text"]),
        ),
    ]);
}

#[test]
fn what_is_no_turn_makes_no_row() {
    for line in [
        json!({"type": "message", "role": "user", "content": "hi"}),
        json!({"type": "user", "message": {"role": "user", "content": "hi"}}),
        json!({"type": "user", "message": {"role": "user", "content": [text("hi")]}}),
        json!({"type": "future_message_type", "content": "hi"}),
        json!({"type": "assistant", "message": {"id": "m", "content": [text("")]}}),
        json!({"type": "assistant", "message": {"id": "m", "content": [{"type": "redacted_thinking", "data": "x"}]}}),
        json!({"type": "stream_event", "event": {"type": "message_start", "message": {"id": "m"}}}),
        json!({"type": "stream_event", "event": {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "of nothing"}}}),
        json!({"type": "system", "subtype": "init", "session_id": "s", "model": "m"}),
        json!({"type": "system", "subtype": "initialized", "content": "x"}),
        json!({"type": "system", "subtype": "other", "content": "  "}),
        json!({"type": "thread.started", "thread_id": "t"}),
        json!({"type": "turn_context", "payload": {"model": "m"}}),
        json!([1, 2]),
        result(),
    ] {
        let text = format!("{line}\n");
        let mut rows = run(&[event(0, &text), last(1)]);
        rows.retain(|one| !matches!(one, Built::CliSession(_)));
        assert!(rows.is_empty(), "{line}: {rows:?}");
    }
}

#[test]
fn calls_and_evidence_are_named_once_each_in_order() {
    let block = |kind: &str, id: &str| match kind {
        "use" => Block::ToolUse {
            id: id.to_owned(),
            name: String::new(),
            input: Value::Null.into(),
            partial: false,
        },
        _ => Block::ToolResult {
            tool_use_id: id.to_owned(),
            content: Value::Null.into(),
            is_error: false,
        },
    };
    let all = [
        ("use", "b"),
        ("use", "a"),
        ("use", "b"),
        ("use", ""),
        ("result", "a"),
        ("result", "a"),
    ];
    let all: Vec<Block> = all.iter().map(|(kind, id)| block(kind, id)).collect();
    assert_eq!(tool_call_ids(&all), ["b", "a"]);
    assert_eq!(evidence_ids(&all), ["a"]);
}
