use super::*;

#[test]
fn codex_events_are_turns() {
    let built = run(&[event(0, CODEX)]);
    let session = "0199a213-81c0-7800-8aa1-bbab2a035a53".to_owned();
    assert_eq!(built[0], Built::CliSession(session));
    let turns = turns(built);
    assert_eq!(turns.len(), 1);
    assert_eq!(turns[0].terminal, TerminalReason::Result);
    let beside = ["thinking", "tool_use", "tool_use", "text"];
    assert_eq!(
        interactive(&turns[0]),
        some("The README is there.", &beside)
    );
    let told = blocks(&turns[0]);
    assert_eq!(tool_call_ids(&told), ["item_1", "item_2"]);
    assert_eq!(evidence_ids(&told), ["item_1", "item_2"]);
    let answer = Block::ToolResult {
        tool_use_id: "item_1".to_owned(),
        content: json!("docs\nREADME.md\n").into(),
        is_error: false,
    };
    assert_eq!(told[2], answer);
}

#[test]
fn a_resumed_conversation_numbers_its_items_anew_and_loses_none() {
    let both = format!("{CODEX}{RESUMED}");
    let turns = recorded(&both);
    assert_eq!(turns.len(), 2);
    let second = blocks(&turns[1]);
    assert_eq!(
        kinds(&second),
        ["tool_use", "tool_result", "tool_use", "tool_use", "text"]
    );
    let failed = Block::ToolResult {
        tool_use_id: "item_2".to_owned(),
        content: json!({"message": "no such server"}).into(),
        is_error: true,
    };
    assert_eq!(second[1], failed);
    let (first, second) = (origins(&turns[0]), origins(&turns[1]));
    assert!(
        first
            .iter()
            .all(|name| name.is_some() && !second.contains(name))
    );
    // told again, whatever the pieces, it is known
    let again = turns_of_lines(&both);
    assert_eq!((first, second), (origins(&again[0]), origins(&again[1])));
    // the same words in another conversation, or at another cost, are others
    for (from, to) in [("0199a213", "0299a213"), ("50110", "50111")] {
        let other = recorded(&RESUMED.replace(from, to));
        assert!(!origins(&turns[1]).contains(&origins(&other[0])[0]), "{to}");
    }
}

fn turns_of_lines(text: &str) -> Vec<BuiltTurn> {
    let lines: Vec<LogEvent<'_>> = text
        .split_inclusive('\n')
        .zip(7..)
        .map(|(line, n)| event(n, line))
        .collect();
    turns(run(&lines))
}

#[test]
fn what_a_run_had_begun_is_kept_when_it_is_cut() {
    let begun: String = RESUMED.split_inclusive('\n').take(6).collect();
    let turns = recorded(&begun);
    assert_eq!(turns[0].terminal, TerminalReason::ProcessExit);
    let partial: Vec<bool> = blocks(&turns[0])
        .iter()
        .map(|block| matches!(block, Block::ToolUse { partial: true, .. }))
        .collect();
    assert_eq!(partial, [true, true]);
    assert_eq!(
        origins(&turns[0]),
        [None, None],
        "numbers of a run name nothing"
    );
    let failed = format!(
        "{begun}{}\n",
        json!({"type": "turn.failed", "error": {"message": "x"}})
    );
    assert_eq!(recorded(&failed)[0].terminal, TerminalReason::Error);
}

#[test]
fn commands_that_fail_or_are_declined_are_errors() {
    for (status, code, is_error) in [
        ("completed", json!(0), false),
        ("completed", json!(1), true),
        ("failed", json!(null), true),
        ("declined", json!(null), true),
    ] {
        let item = json!({"id": "item_0", "type": "command_execution", "command": "x", "aggregated_output": "", "exit_code": code, "status": status});
        let turns = ended(&[json!({"type": "item.completed", "item": item})]);
        let [_, Block::ToolResult { is_error: said, .. }] = &blocks(&turns[0])[..] else {
            panic!("a call and its result");
        };
        assert_eq!(*said, is_error, "{status} {code}");
    }
}

#[test]
fn a_rollout_is_told_live_too() {
    let mut lines: Vec<Value> = ROLLOUT
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    lines.insert(
        1,
        json!({"type": "turn_context", "payload": {"model": "gpt-5-codex"}}),
    );
    lines.push(
        json!({"type": "event_msg", "payload": {"type": "turn_aborted", "reason": "interrupted"}}),
    );
    let turns = ended(&lines);
    assert_eq!(turns.len(), 1, "prompts end no turn of a live stream");
    assert_eq!(turns[0].terminal, TerminalReason::Aborted);
    assert_eq!(turns[0].model.as_deref(), Some("gpt-5-codex"));
    let beside = ["reasoning", "tool_use", "text", "text"];
    assert_eq!(
        interactive(&turns[0]),
        some("There is README.md.You are welcome.", &beside)
    );
}
