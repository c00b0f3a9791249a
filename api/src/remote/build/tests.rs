//! The table of the contract, cell by cell, and that a builder may start at any boundary.

use bex_proto::message::{Block, Gap, TerminalReason};
use bex_proto::remote::OutputStream;
use bex_proto::session::SessionKind;
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const TEXT: &str = include_str!("testdata/claude-text.ndjson");
const KINDS: &str = include_str!("testdata/claude-kinds.ndjson");
const CODEX: &str = include_str!("testdata/codex-exec.ndjson");
const ROLLOUT: &str = include_str!("testdata/codex-rollout.jsonl");
const RECORD: &str = include_str!("testdata/claude-record.jsonl");

fn event<'a>(index: u64, data: &'a str) -> LogEvent<'a> {
    LogEvent {
        index,
        stream: OutputStream::Stdout,
        data,
        complete: false,
        at: Timestamp::UNIX_EPOCH,
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

/// Lines in an event each, and the end of the program.
fn ended(lines: &[Value]) -> Vec<BuiltTurn> {
    let texts: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
    let mut events: Vec<LogEvent<'_>> = texts.iter().zip(0..).map(|(t, n)| event(n, t)).collect();
    events.push(LogEvent {
        complete: true,
        ..event(texts.len() as u64, "")
    });
    turns(run(&events))
}

fn turns(built: Vec<Built>) -> Vec<BuiltTurn> {
    let turns = built.into_iter().filter_map(|one| match one {
        Built::Turn(turn) => Some(turn),
        _ => None,
    });
    turns.collect()
}

fn blocks(turn: &BuiltTurn) -> Vec<Block> {
    turn.blocks
        .iter()
        .map(|built| built.block.clone())
        .collect()
}

fn interactive(turn: &BuiltTurn) -> Option<(String, usize)> {
    told(SessionKind::Interactive, &blocks(turn)).map(|told| (told.visible_text, told.blocks.len()))
}

fn autonomous(turn: &BuiltTurn) -> Option<(String, usize)> {
    told(SessionKind::Autonomous, &blocks(turn)).map(|told| (told.visible_text, told.blocks.len()))
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

fn thought() -> Value {
    json!({"type": "thinking", "thinking": "hm"})
}

fn answer() -> Value {
    json!({"type": "user", "message": {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t1", "content": "a", "is_error": true}]}})
}

fn result() -> Value {
    json!({"type": "result", "subtype": "success", "is_error": false})
}

fn some(text: &str, blocks: usize) -> Option<(String, usize)> {
    Some((text.to_owned(), blocks))
}

#[test]
fn the_table_cell_by_cell() {
    let both =
        json!({"type": "assistant", "message": {"id": "msg_1", "content": [text("hi"), tool()]}});
    let message = json!({"type": "message", "role": "assistant", "content": "hi"});
    let listed = json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]});
    let only_call = json!({"type": "message", "role": "assistant", "content": [tool()]});
    let chat = json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}}]});
    // what is said, what a person is told, what a workflow keeps
    let cells = [
        (
            "text",
            vec![assistant(text("hi"))],
            some("hi", 1),
            some("hi", 1),
        ),
        (
            "text and tool in one event",
            vec![both],
            some("hi", 2),
            some("hi", 2),
        ),
        (
            "text and tool in two events",
            vec![assistant(text("hi")), assistant(tool())],
            some("hi", 2),
            some("hi", 2),
        ),
        (
            "tool, then text",
            vec![assistant(tool()), assistant(text("hi"))],
            some("hi", 2),
            some("hi", 2),
        ),
        ("tool only", vec![assistant(tool())], None, some("", 1)),
        (
            "thinking only",
            vec![assistant(thought())],
            None,
            some("", 1),
        ),
        (
            "result of a tool before",
            vec![answer(), assistant(text("hi"))],
            some("hi", 1),
            some("hi", 2),
        ),
        (
            "result of a tool after",
            vec![assistant(text("hi")), answer()],
            some("hi", 1),
            some("hi", 2),
        ),
        ("result of a tool only", vec![answer()], None, some("", 1)),
        (
            "blank text",
            vec![assistant(text(" \n"))],
            None,
            some(" \n", 1),
        ),
        (
            "string content",
            vec![json!({"type": "assistant", "message": {"content": "hi"}})],
            some("hi", 1),
            some("hi", 1),
        ),
        (
            "message, string",
            vec![message],
            some("hi", 1),
            some("hi", 1),
        ),
        ("message, list", vec![listed], some("hi", 1), some("hi", 1)),
        ("message, tool only", vec![only_call], None, some("", 1)),
        ("chat form, tool only", vec![chat], None, some("", 1)),
        (
            "joined without anything between",
            vec![assistant(text("a")), assistant(text("b"))],
            some("ab", 2),
            some("ab", 2),
        ),
    ];
    for (name, mut lines, person, workflow) in cells {
        for (end, reason) in [
            (vec![result()], TerminalReason::Result),
            (vec![], TerminalReason::ProcessExit),
        ] {
            let mut all = lines.clone();
            all.extend(end);
            let turns = ended(&all);
            assert_eq!(turns.len(), 1, "{name}");
            assert_eq!(turns[0].terminal, reason, "{name}");
            assert_eq!(interactive(&turns[0]), person, "{name}, interactive");
            assert_eq!(autonomous(&turns[0]), workflow, "{name}, autonomous");
        }
        lines.clear();
    }
}

#[test]
fn what_is_no_turn_makes_no_row() {
    for line in [
        json!({"type": "message", "role": "user", "content": "hi"}),
        json!({"type": "user", "message": {"role": "user", "content": "hi"}}),
        json!({"type": "user", "message": {"role": "user", "content": [text("hi")]}}),
        json!({"type": "future_message_type", "content": "hi"}),
        json!({"type": "assistant", "parent_tool_use_id": "t9", "message": {"id": "m", "content": [text("a sub-agent's")]}}),
        json!({"type": "system", "subtype": "init", "session_id": "s", "model": "m"}),
        json!({"type": "system", "subtype": "initialized", "content": "x"}),
        json!({"type": "system", "subtype": "other", "content": "  "}),
        json!([1, 2]),
        result(),
    ] {
        let text = format!("{line}\n");
        let built = run(&[
            event(0, &text),
            LogEvent {
                complete: true,
                ..event(1, "")
            },
        ]);
        let rows: Vec<&Built> = built
            .iter()
            .filter(|one| !matches!(one, Built::CliSession(_)))
            .collect();
        assert!(rows.is_empty(), "{line}: {rows:?}");
    }
}

#[test]
fn a_recorded_conversation_is_its_turn_and_its_end_is_written_once() {
    let built = run(&[
        event(0, TEXT),
        LogEvent {
            complete: true,
            ..event(1, "")
        },
    ]);
    assert_eq!(
        built[0],
        Built::CliSession("1d1e46f9-35c7-4834-b529-846d5bb82288".to_owned())
    );
    let turns = turns(built);
    assert_eq!(turns.len(), 1);
    assert_eq!(interactive(&turns[0]), some("4", 1));
    assert_eq!(turns[0].model.as_deref(), Some("claude-opus-4-5-20251101"));
    let origin = turns[0].blocks[0].origin.as_deref();
    assert_eq!(origin, Some("msg_01Y1Lo6gYUXN71XaAq7sjUPm:text:0"));
}

#[test]
fn unknown_kinds_are_passed_over_and_known_ones_beside_them_kept() {
    let turns = turns(run(&[
        event(0, KINDS),
        LogEvent {
            complete: true,
            ..event(1, "")
        },
    ]));
    assert!(turns.len() >= 2, "{turns:?}");
    let kinds: Vec<Vec<&str>> = turns
        .iter()
        .map(|turn| turn.blocks.iter().map(|built| kind(&built.block)).collect())
        .collect();
    assert_eq!(kinds[0], ["tool_use", "tool_result"]);
    assert!(kinds[1].starts_with(&["text"]), "{kinds:?}");
    assert!(
        kinds
            .concat()
            .ends_with(&["text", "tool_use", "text", "tool_use", "text"]),
        "{kinds:?}"
    );
}

fn kind(block: &Block) -> &'static str {
    match block {
        Block::Text { .. } => "text",
        Block::Thinking { .. } => "thinking",
        Block::Reasoning { .. } => "reasoning",
        Block::ToolUse { .. } => "tool_use",
        Block::ToolResult { .. } => "tool_result",
    }
}

#[test]
fn two_turns_are_two_rows_and_a_resumed_program_adds_none_of_its_own() {
    let init = json!({"type": "system", "subtype": "init", "session_id": "s"});
    let turns = ended(&[
        init.clone(),
        assistant(text("one")),
        result(),
        init,
        assistant(text("two")),
        result(),
    ]);
    assert_eq!(turns.len(), 2);
    assert_eq!((turns[0].ordinal, turns[1].ordinal), (0, 1));
    assert_eq!((turns[0].first, turns[1].first), ((1, 0), (4, 0)));
    assert_eq!((turns[0].last_index, turns[1].last_index), (2, 5));
}

#[test]
fn a_failed_result_and_an_abort_say_so_and_keep_what_was_said() {
    let failed = json!({"type": "result", "subtype": "error_during_execution", "is_error": true});
    let turns_failed = ended(&[assistant(text("half")), failed]);
    assert_eq!(turns_failed[0].terminal, TerminalReason::Error);
    let said = format!("{}\n", assistant(text("half an ans")));
    for state in [r#"{"state":"aborted"}"#, "aborted"] {
        let abort = LogEvent {
            stream: OutputStream::RequestState,
            ..event(1, state)
        };
        let turns = turns(run(&[event(0, &said), abort]));
        assert_eq!(turns[0].terminal, TerminalReason::Aborted);
        assert_eq!(interactive(&turns[0]), some("half an ans", 1));
    }
    let failed = LogEvent {
        stream: OutputStream::RequestState,
        ..event(1, r#"{"state":"abort_failed"}"#)
    };
    assert!(turns(run(&[event(0, &said), failed])).is_empty());
}

fn streamed(event: Value) -> Value {
    json!({"type": "stream_event", "event": event, "session_id": "s"})
}

fn pieces() -> Vec<Value> {
    vec![
        streamed(json!({"type": "message_start", "message": {"id": "msg_1", "model": "m"}})),
        streamed(
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        ),
        streamed(
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hel"}}),
        ),
        streamed(
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}}),
        ),
        streamed(json!({"type": "content_block_stop", "index": 0})),
    ]
}

#[test]
fn pieces_of_a_message_are_replaced_by_the_whole_and_kept_where_it_never_came() {
    let mut whole = pieces();
    whole.push(assistant(text("Hello")));
    whole.push(streamed(json!({"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "t1", "name": "Bash"}})));
    whole.push(streamed(json!({"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{\"comm"}})));
    let cut = ended(&whole);
    assert_eq!(
        blocks(&cut[0]),
        [
            Block::Text {
                text: "Hello".into(),
                partial: false
            },
            Block::ToolUse {
                id: "t1".into(),
                name: "Bash".into(),
                input: json!("{\"comm"),
                partial: true
            }
        ]
    );
    whole.push(assistant(tool()));
    whole.push(result());
    let turns = ended(&whole);
    assert_eq!(
        blocks(&turns[0])[1],
        Block::ToolUse {
            id: "t1".into(),
            name: "Bash".into(),
            input: json!({"command": "ls"}),
            partial: false
        }
    );
    assert_eq!(turns[0].blocks.len(), 2);
    let never = ended(&pieces());
    assert_eq!(
        blocks(&never[0]),
        [Block::Text {
            text: "Hello".into(),
            partial: true
        }]
    );
    assert_eq!(never[0].terminal, TerminalReason::ProcessExit);
}

#[test]
fn the_same_event_told_twice_in_a_turn_is_one_block() {
    let mut one = assistant(text("hi"));
    one["uuid"] = json!("u1");
    let turns = ended(&[one.clone(), one, result()]);
    assert_eq!(interactive(&turns[0]), some("hi", 1));
}

#[test]
fn codex_events_are_turns() {
    let built = run(&[event(0, CODEX)]);
    assert_eq!(
        built[0],
        Built::CliSession("0199a213-81c0-7800-8aa1-bbab2a035a53".to_owned())
    );
    let turns = turns(built);
    assert_eq!(turns.len(), 1);
    assert_eq!(interactive(&turns[0]), some("The README is there.", 4));
    let kinds: Vec<&str> = turns[0]
        .blocks
        .iter()
        .map(|built| kind(&built.block))
        .collect();
    assert_eq!(
        kinds,
        ["thinking", "tool_use", "tool_result", "tool_use", "text"]
    );
    assert_eq!(tool_call_ids(&blocks(&turns[0])), ["item_1", "item_2"]);
    assert_eq!(evidence_ids(&blocks(&turns[0])), ["item_1"]);
}

#[test]
fn records_tell_prompts_and_turns() {
    let told = import(ROLLOUT);
    let texts: Vec<String> = told
        .iter()
        .map(|one| match one {
            Imported::User { text, .. } => format!("user: {text}"),
            Imported::Turn(turn) => visible_text(&blocks(turn)),
        })
        .collect();
    assert_eq!(
        texts,
        [
            "user: list the files",
            "There is README.md.",
            "user: thanks",
            "You are welcome."
        ]
    );
    let Imported::Turn(turn) = &told[1] else {
        panic!("a turn")
    };
    let kinds: Vec<&str> = turn.blocks.iter().map(|built| kind(&built.block)).collect();
    assert_eq!(kinds, ["reasoning", "tool_use", "tool_result", "text"]);
    let told = import(RECORD);
    assert!(
        matches!(&told[0], Imported::User { origin: Some(origin), at: Some(_), .. } if origin == "user:user_001")
    );
    assert!(matches!(&told[1], Imported::Turn(turn) if !turn.blocks.is_empty()));
}

#[test]
fn a_gap_marks_its_turn_and_half_a_line_is_given_up() {
    let gap = Gap { from: 1, to: 2 };
    let (one, two) = (
        format!("{}\n", assistant(text("one "))),
        format!("{}\n", assistant(text("two"))),
    );
    let (half, end) = (&one[..20], format!("{}\n", result()));
    let mut builder = Builder::new(Cursor::default());
    let mut out = Vec::new();
    builder.event(&event(0, &format!("{one}{half}")), &mut out);
    builder.gap(gap);
    builder.event(&event(3, &format!("{two}{end}")), &mut out);
    builder.gap(Gap { from: 4, to: 4 });
    assert_eq!(
        builder.boundary(),
        Cursor {
            index: 4,
            offset: 0,
            ordinal: 1
        },
        "a gap before a turn is that turn's"
    );
    builder.event(&event(5, &format!("{two}{end}")), &mut out);
    let turns = turns(out);
    assert_eq!(
        (turns[0].terminal, &turns[0].gaps[..]),
        (TerminalReason::Gap, &[gap][..])
    );
    assert_eq!(interactive(&turns[0]), some("one two", 2));
    assert_eq!(turns[1].gaps, [Gap { from: 4, to: 4 }]);
}

#[test]
fn what_the_store_cannot_hold_and_what_is_too_large_is_mended_or_told() {
    let odd = r#"{"type":"assistant","message":{"content":[{"type":"text","text":"a\u0000b\ud800c\ud83d\ude00\\ud800"}]}}"#;
    let line = format!("{odd}\n");
    let turns_odd = turns(run(&[
        event(0, &line),
        LogEvent {
            complete: true,
            ..event(1, "")
        },
    ]));
    assert_eq!(
        interactive(&turns_odd[0]),
        some("a\u{fffd}b\u{fffd}c😀\\ud800", 1)
    );
    let long = "x".repeat(bex_proto::limits::REMOTE_LINE_BYTES);
    let long = format!("{{\"type\":\"{long}\"}}\n");
    let end = format!("{}\n{}\n", assistant(text("hi")), result());
    let (a, b) = long.split_at(long.len() / 2);
    let turns = turns(run(&[event(0, a), event(1, b), event(2, &end)]));
    assert_eq!(interactive(&turns[0]), some("hi", 1));
    assert!(turns[0].overflow);
    let many: Vec<Value> = (0..bex_proto::limits::TURN_BLOCKS + 5)
        .map(|_| json!({"type": "assistant", "message": {"content": [tool()]}}))
        .collect();
    let turns = ended(&many);
    assert_eq!(turns[0].blocks.len(), bex_proto::limits::TURN_BLOCKS);
    assert!(turns[0].overflow);
}

#[test]
fn system_words_are_rows_in_their_place() {
    let system = LogEvent {
        stream: OutputStream::System,
        complete: true,
        ..event(1, "the machine rebooted")
    };
    let open = format!("{}\n", assistant(text("one")));
    let end = format!(
        "{}\n{}\n",
        json!({"type": "system", "subtype": "notice", "content": {"a": 1}}),
        result()
    );
    let built = run(&[event(0, &open), system, event(2, &end)]);
    let rows: Vec<String> = built
        .iter()
        .map(|one| match one {
            Built::System(system) => format!("{} {}", system.ordinal, system.content),
            Built::Turn(turn) => format!("{} turn", turn.ordinal),
            Built::CliSession(id) => id.clone(),
        })
        .collect();
    assert_eq!(rows, ["0 the machine rebooted", "1 {\"a\":1}", "2 turn"]);
}

#[test]
fn parts_of_an_agent_session_are_the_same_blocks() {
    let parts = [
        r#"{"type":"reasoning-start","id":"r"}"#,
        r#"{"type":"reasoning-delta","id":"r","delta":"hm"}"#,
        r#"{"type":"text-start","id":"a"}"#,
        r#"{"type":"text-delta","id":"a","delta":"Hel"}"#,
        r#"{"type":"tool-input-available","toolCallId":"t","toolName":"ls","input":{"a":1}}"#,
        r#"{"type":"text-delta","id":"a","delta":"lo"}"#,
        r#"{"type":"tool-output-available","toolCallId":"t","output":"x"}"#,
        r#"{"type":"text-start","id":"empty"}"#,
        r#"{"type":"data-acp-plan","data":{}}"#,
    ];
    let blocks = of_parts(parts.into_iter());
    let kinds: Vec<&str> = blocks.iter().map(kind).collect();
    assert_eq!(kinds, ["thinking", "text", "tool_use", "tool_result"]);
    assert_eq!(visible_text(&blocks), "Hello");
}

/// Everything there is, as one output.
fn everything() -> String {
    let mut all = String::from(TEXT);
    all.push_str(CODEX);
    all.push_str(KINDS);
    for one in pieces() {
        all.push_str(&format!("{one}\n"));
    }
    all.push_str("no json\n{\"half\": \n");
    all.push_str(&format!(
        "{}\n",
        json!({"type": "system", "subtype": "note", "content": "ünï\u{2028}"})
    ));
    all.push_str(&format!("{}\n", result()));
    all
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_pieces_and_any_restart_give_the_same_rows(
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..80),
        restarts in proptest::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let all = everything();
        let mut places: Vec<usize> = cuts.iter().map(|cut| all.floor_char_boundary(cut.index(all.len()))).chain([0, all.len()]).collect();
        places.sort_unstable();
        let pieces: Vec<&str> = places.windows(2).map(|at| &all[at[0]..at[1]]).collect();
        let events: Vec<LogEvent<'_>> = pieces.iter().zip(0..).map(|(piece, n)| event(n, piece)).collect();
        let straight = run(&events);
        // what is said does not depend on the pieces
        let whole = run(&[event(0, &all)]);
        let content = |built: &[Built]| -> Vec<Value> {
            built.iter().map(|one| match one {
                Built::Turn(turn) => json!([turn.ordinal, format!("{:?}", turn.blocks), format!("{:?}", turn.terminal)]),
                Built::System(system) => json!([system.ordinal, system.content]),
                Built::CliSession(id) => json!(id),
            }).collect()
        };
        prop_assert_eq!(content(&straight), content(&whole));
        // and the rows of these pieces do not depend on who reads them from where
        let mut stops: Vec<usize> = restarts.iter().map(|at| at.index(events.len())).collect();
        stops.sort_unstable();
        let mut rows: Vec<Built> = Vec::new();
        let mut start = Cursor::default();
        for stop in stops.into_iter().chain([events.len()]) {
            let mut builder = Builder::new(start);
            let mut out = Vec::new();
            for event in events.iter().filter(|event| event.index >= start.index).take_while(|event| event.index < stop as u64) {
                builder.event(event, &mut out);
            }
            let known = rows.iter().filter(|one| !matches!(one, Built::CliSession(_))).count() as u64;
            rows.extend(out.into_iter().filter(|one| match one {
                Built::Turn(turn) => turn.ordinal >= known,
                Built::System(system) => system.ordinal >= known,
                Built::CliSession(_) => false,
            }));
            prop_assert!(builder.boundary().index >= start.index);
            start = builder.boundary();
        }
        let straight: Vec<Built> = straight.into_iter().filter(|one| !matches!(one, Built::CliSession(_))).collect();
        prop_assert_eq!(rows, straight);
    }
}
