use super::*;

#[test]
fn a_recorded_conversation_is_its_turn_and_its_end_is_written_once() {
    let built = run(&[event(0, TEXT), last(1)]);
    let session = "1d1e46f9-35c7-4834-b529-846d5bb82288".to_owned();
    assert_eq!(built[0], Built::CliSession(session));
    let turns = turns(built);
    assert_eq!(turns.len(), 1);
    assert_eq!(blocks(&turns[0]), [said("4")]);
    assert_eq!(turns[0].model.as_deref(), Some("claude-opus-4-5-20251101"));
    let origin = turns[0].blocks[0].origin.as_deref().expect("a name");
    assert!(
        origin.starts_with("msg_01Y1Lo6gYUXN71XaAq7sjUPm:text:"),
        "{origin}"
    );
}

#[test]
fn unknown_kinds_are_passed_over_and_known_ones_beside_them_kept() {
    let turns = recorded(KINDS);
    let told: Vec<_> = turns.iter().map(|turn| kinds(&blocks(turn))).collect();
    let second = ["text", "text", "tool_use", "text", "tool_use", "text"];
    assert_eq!(told, [&["tool_use", "tool_result"][..], &second]);
    assert_eq!(blocks(&turns[1])[5], half_said("In progress..."));
}

#[test]
fn two_turns_are_two_rows_and_a_resumed_program_adds_none_of_its_own() {
    let init = json!({"type": "system", "subtype": "init", "session_id": "s"});
    let turns = ended(&[
        init.clone(),
        assistant(text("one")),
        result(),
        init.clone(),
        assistant(text("two")),
        result(),
        init.clone(),
        assistant(text("cut")),
        init,
        assistant(text("three")),
        result(),
    ]);
    let told: Vec<_> = turns.iter().map(|t| visible_text(&blocks(t))).collect();
    assert_eq!(told, ["one", "two", "cut", "three"]);
    assert_eq!((turns[0].ordinal, turns[3].ordinal), (0, 3));
    assert_eq!((turns[0].first, turns[1].first), ((1, 0), (4, 0)));
    assert_eq!((turns[0].last_index, turns[1].last_index), (2, 5));
    assert_eq!(
        (
            turns[0].started_at.as_second(),
            turns[0].completed_at.as_second()
        ),
        (1, 2)
    );
    assert_eq!(
        turns[2].terminal,
        TerminalReason::ProcessExit,
        "another run began"
    );
}

#[test]
fn pieces_are_replaced_by_the_whole() {
    let turns = recorded(PARTIAL);
    assert_eq!(turns.len(), 1);
    let told = blocks(&turns[0]);
    assert_eq!(
        kinds(&told),
        ["thinking", "text", "tool_use", "tool_result", "text"]
    );
    assert_eq!(visible_text(&told), "Let me look. There is README.md 😀.");
    let cut = told.iter().any(|block| {
        matches!(
            block,
            Block::Text { partial: true, .. }
                | Block::Thinking { partial: true, .. }
                | Block::ToolUse { partial: true, .. }
        )
    });
    assert!(!cut, "{told:?}");
}

/// The recording up to a line, and an abort.
fn aborted_after(lines: usize) -> BuiltTurn {
    let begun: String = PARTIAL.split_inclusive('\n').take(lines).collect();
    let abort = LogEvent {
        stream: OutputStream::RequestState,
        ..event(1, r#"{"state":"aborted"}"#)
    };
    let mut turns = turns(run(&[event(0, &begun), abort, last(2)]));
    assert_eq!(turns.len(), 1);
    assert_eq!(turns[0].terminal, TerminalReason::Aborted);
    turns.remove(0)
}

#[test]
fn what_never_came_whole_is_kept_and_marked_when_the_turn_is_cut() {
    let words = aborted_after(10);
    assert_eq!(blocks(&words)[1], half_said("Let me "));
    let call = |input: Value, partial| Block::ToolUse {
        id: "toolu_01Partial00000000001".to_owned(),
        name: "Bash".to_owned(),
        input: input.into(),
        partial,
    };
    assert_eq!(
        blocks(&aborted_after(15))[2],
        call(json!("{\"command\": "), true)
    );
    assert_eq!(
        blocks(&aborted_after(16))[2],
        call(json!({"command": "ls"}), true)
    );
    assert_eq!(
        blocks(&aborted_after(17))[2],
        call(json!({"command": "ls"}), false)
    );
    // the whole block came before its piece's end did
    assert_eq!(blocks(&aborted_after(12)).len(), 2);
    let end = blocks(&aborted_after(25));
    assert_eq!(end[4], half_said("There is README.md 😀."));
}

#[test]
fn a_program_that_tries_again_says_it_once() {
    let of = |event: Value| json!({"type": "stream_event", "event": event});
    let start = |id: &str| of(json!({"type": "message_start", "message": {"id": id}}));
    let block = of(
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
    );
    let words = |text: &str| {
        of(
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
        )
    };
    let again = ended(&[
        start("m1"),
        block.clone(),
        words("Hel"),
        start("m2"),
        block.clone(),
        words("Hello"),
    ]);
    assert_eq!(blocks(&again[0]), [half_said("Hello")]);
    // one that came to its end and never whole is no attempt
    let (stop, end) = (
        of(json!({"type": "content_block_stop", "index": 0})),
        of(json!({"type": "message_stop"})),
    );
    let both = ended(&[
        start("m1"),
        block.clone(),
        words("one "),
        stop,
        end,
        start("m2"),
        block,
        words("two"),
    ]);
    assert_eq!(blocks(&both[0]), [said("one "), half_said("two")]);
}

/// The recording, a line an event, of which these never arrive.
fn without(lost: std::ops::RangeInclusive<u64>) -> Vec<Block> {
    let mut builder = Builder::new(Cursor::default());
    let mut out = Vec::new();
    for (index, line) in (0..).zip(PARTIAL.split_inclusive('\n')) {
        if !lost.contains(&index) {
            builder.event(&event(index, line), &mut out);
        } else if index == *lost.start() {
            let (from, to) = (*lost.start(), *lost.end());
            builder.gap(Gap { from, to });
        }
    }
    let turns = turns(out);
    assert_eq!(turns.len(), 1);
    assert_eq!(turns[0].terminal, TerminalReason::Gap);
    blocks(&turns[0])
}

#[test]
fn where_events_are_missing_what_came_is_kept_once() {
    // a whole text: its pieces stand in for it
    let told = without(11..=11);
    assert_eq!(
        kinds(&told),
        ["thinking", "tool_use", "tool_result", "text", "text"]
    );
    assert!(told.contains(&said("Let me look. ")), "{told:?}");
    // all to the message's end: nobody takes the next message for another attempt
    let told = without(11..=19);
    assert_eq!(kinds(&told), ["thinking", "tool_result", "text", "text"]);
    assert!(told.contains(&half_said("Let me look. ")), "{told:?}");
    // a piece: the whole text takes its place
    let told = without(9..=9);
    assert_eq!(visible_text(&told), "Let me look. There is README.md 😀.");
}

#[test]
fn a_sub_agent_is_evidence_of_its_turn_and_says_nothing_to_the_reader() {
    let turns = recorded(SUB_AGENT);
    assert_eq!(turns.len(), 1);
    let beside = ["tool_use", "thinking", "tool_use", "text"];
    assert_eq!(interactive(&turns[0]), some("There are 3.", &beside));
    let kept = [
        "tool_use",
        "thinking",
        "tool_use",
        "tool_result",
        "tool_result",
        "text",
    ];
    assert_eq!(autonomous(&turns[0]), some("There are 3.", &kept));
    assert_eq!(turns[0].model.as_deref(), Some("claude-sonnet-4-5"));
    let evidence = ["toolu_01SubAgentBash00001", "toolu_01SubAgentTask00001"];
    assert_eq!(evidence_ids(&blocks(&turns[0])), evidence);
    let only: String = SUB_AGENT.split_inclusive('\n').skip(2).take(2).collect();
    assert_eq!(interactive(&recorded(&only)[0]), None);
}

#[test]
fn a_failed_result_and_an_abort_say_so_and_keep_what_was_said() {
    for failed in [
        json!({"type": "result", "subtype": "error_during_execution", "is_error": false}),
        json!({"type": "result", "subtype": "success", "is_error": true}),
    ] {
        let turns = ended(&[assistant(text("half")), failed]);
        assert_eq!(turns[0].terminal, TerminalReason::Error);
    }
    let words = format!("{}\n", assistant(text("half an ans")));
    let state = |state| LogEvent {
        stream: OutputStream::RequestState,
        ..event(1, state)
    };
    for aborted in [r#"{"state":"aborted"}"#, "aborted"] {
        let turns = turns(run(&[event(0, &words), state(aborted)]));
        assert_eq!(turns[0].terminal, TerminalReason::Aborted);
        assert_eq!(blocks(&turns[0]), [said("half an ans")]);
    }
    for other in [
        r#"{"state":"abort_failed"}"#,
        r#"{"state":"done"}"#,
        "{}",
        "1",
        "",
    ] {
        assert!(
            turns(run(&[event(0, &words), state(other)])).is_empty(),
            "{other}"
        );
    }
}

#[test]
fn what_is_told_again_in_a_turn_is_one_block_and_has_one_name_everywhere() {
    let turn = || vec![assistant(text("hi")), assistant(tool()), answer()];
    let mut twice = turn();
    twice.extend(turn());
    twice.push(result());
    let once = ended(&turn());
    let twice = ended(&twice);
    assert_eq!(blocks(&twice[0]), blocks(&once[0]));
    let names: Vec<Option<&str>> = origins(&once[0]);
    assert_eq!(names, origins(&twice[0]));
    assert!(names.iter().all(Option::is_some));
    // another text of a message with the same id, another call under a counter's number: others
    let mut other_call = tool();
    other_call["input"] = json!({"command": "pwd"});
    let other = ended(&[assistant(text("ho")), assistant(other_call)]);
    assert!(origins(&other[0]).iter().all(|name| !names.contains(name)));
}

#[test]
fn names_are_short_whatever_ids_are() {
    let long = "x".repeat(5000);
    let turns = ended(&[
        json!({"type": "assistant", "message": {"id": long, "model": long, "content": [
        text("hi"), {"type": "tool_use", "id": long, "name": "f", "input": 1}]}}),
    ]);
    for name in origins(&turns[0]) {
        let name = name.expect("a name");
        assert!(name.len() < 200, "{name}");
    }
    assert_eq!(turns[0].model, None);
    let init = format!(
        "{}\n",
        json!({"type": "system", "subtype": "init", "session_id": long})
    );
    assert_eq!(run(&[event(0, &init)]), []);
}
