//! Gaps, bounds, the end, and what is no line of JSON.

use bex_proto::limits::{REMOTE_LINE_BYTES, TURN_BLOCK_BYTES, TURN_BLOCKS, TURN_TEXT_BYTES};
use bex_proto::message::Json;

use super::*;

fn lines(values: &[Value]) -> String {
    values.iter().map(|value| format!("{value}\n")).collect()
}

#[test]
fn a_gap_marks_its_turn_and_half_a_line_is_given_up() {
    let gap = Gap { from: 1, to: 2 };
    let one = lines(&[assistant(text("one "))]);
    let two = lines(&[assistant(text("two")), result()]);
    let mut builder = Builder::new(Cursor::default());
    let mut out = Vec::new();
    builder.event(&event(0, &format!("{one}{}", &one[..20])), &mut out);
    builder.gap(gap);
    // nobody knows whether this is the rest of that line or another: it is another if it is a line
    builder.event(&event(3, &two), &mut out);
    builder.gap(Gap { from: 4, to: 4 });
    let before = Cursor {
        index: 4,
        offset: 0,
        ordinal: 1,
    };
    assert_eq!(
        builder.boundary(),
        before,
        "a gap before a turn is that turn's"
    );
    builder.event(&event(5, &two), &mut out);
    let turns = turns(out);
    assert_eq!(
        (turns[0].terminal, &turns[0].gaps[..]),
        (TerminalReason::Gap, &[gap][..])
    );
    assert_eq!(visible_text(&blocks(&turns[0])), "one two");
    assert_eq!(turns[1].gaps, [Gap { from: 4, to: 4 }]);
    assert_eq!(builder.boundary().index, 6);
}

#[test]
fn the_rest_of_a_line_says_nothing() {
    let nested = lines(&[
        json!({"type": "later", "of": {"type": "result"}, "said": assistant(text("x")).to_string()}),
    ]);
    for at in (1..nested.len()).filter(|at| nested.is_char_boundary(*at)) {
        let mut builder = Builder::new(Cursor::default());
        let mut out = Vec::new();
        builder.gap(Gap { from: 0, to: 0 });
        builder.event(&event(1, &nested[at..]), &mut out);
        assert_eq!(out, [], "{}", &nested[at..]);
    }
}

#[test]
fn a_turn_that_never_arrived_is_told_and_blames_no_other() {
    let (end, next) = (
        lines(&[result()]),
        lines(&[assistant(text("hi")), result()]),
    );
    let mut builder = Builder::new(Cursor::default());
    let mut out = Vec::new();
    builder.gap(Gap { from: 0, to: 4 });
    builder.event(&event(5, &end), &mut out);
    builder.event(&event(6, &next), &mut out);
    let turns = turns(out);
    assert_eq!(
        (turns[0].terminal, turns[0].blocks.len()),
        (TerminalReason::Gap, 0)
    );
    assert_eq!(
        (turns[1].terminal, turns[1].gaps.len()),
        (TerminalReason::Result, 0)
    );
    assert_eq!(interactive(&turns[0]), None);
    assert_eq!(autonomous(&turns[0]), None);
}

#[test]
fn a_line_that_was_not_finished_is_read_at_the_end() {
    let words = assistant(text("hi")).to_string();
    let at_exit = turns(run(&[event(0, &words), last(1)]));
    assert_eq!(blocks(&at_exit[0]), [said("hi")]);
    let mut builder = Builder::new(Cursor::default());
    let mut out = Vec::new();
    builder.event(&event(0, &words), &mut out);
    let at = Timestamp::from_second(9).expect("a time");
    builder.end(TerminalReason::Stopped, at, &mut out);
    builder.end(TerminalReason::Stopped, at, &mut out);
    let at_end = turns(out);
    assert_eq!(at_end.len(), 1);
    assert_eq!(
        (at_end[0].terminal, at_end[0].completed_at),
        (TerminalReason::Stopped, at)
    );
    assert_eq!(blocks(&at_end[0]), [said("hi")]);
    let end = Cursor {
        index: 1,
        offset: 0,
        ordinal: 1,
    };
    assert_eq!(builder.boundary(), end);
    let mut untouched = Builder::new(end);
    untouched.end(TerminalReason::Stopped, at, &mut Vec::new());
    assert_eq!(untouched.boundary(), end);
}

#[test]
fn what_the_store_cannot_hold_is_mended_wherever_it_stands() {
    let odd = r#"{"type":"assistant","message":{"content":[{"type":"text","text":"a\u0000b\ud800c\ud83d\ude00\\ud800\\u0000"},{"type":"tool_use","id":"t","name":"f","input":{"k\u0000":["\udc00"]}}]}}"#;
    let arguments = r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{\"x\":\"\\u0000\\ud83d\"}"}"#;
    let turns = recorded(&format!("{odd}\n{arguments}\n"));
    let inputs: Vec<Json> = blocks(&turns[0])
        .into_iter()
        .filter_map(|block| match block {
            Block::ToolUse { input, .. } => Some(input),
            _ => None,
        })
        .collect();
    assert_eq!(
        visible_text(&blocks(&turns[0])),
        "a\u{fffd}b\u{fffd}c😀\\ud800\\u0000"
    );
    assert_eq!(
        inputs,
        [
            json!({"k\u{fffd}": ["\u{fffd}"]}).into(),
            json!({"x": "\u{fffd}\u{fffd}"}).into()
        ]
    );
}

#[test]
fn a_line_that_is_too_long_is_passed_over_and_told() {
    let object = |length: usize| {
        let rest = "x".repeat(length - r#"{"type":"assistant","message":{"content":""}}"#.len());
        json!({"type": "assistant", "message": {"content": rest}}).to_string() + "\n"
    };
    let end = lines(&[assistant(text("hi")), result()]);
    for (length, kept) in [(REMOTE_LINE_BYTES, true), (REMOTE_LINE_BYTES + 1, false)] {
        let long = object(length);
        assert_eq!(long.len(), length + 1);
        let (a, b) = long.split_at(long.len() / 2);
        let turns = turns(run(&[event(0, a), event(1, b), event(2, &end)]));
        assert_eq!(turns[0].blocks.len(), if kept { 2 } else { 1 });
        assert_eq!(turns[0].overflow, !kept);
    }
    // what could never have been a message is none of it
    let noise = "#".repeat(REMOTE_LINE_BYTES + 1) + "\n";
    let turns = turns(run(&[event(0, &noise), event(1, &end), event(2, &end)]));
    assert!(!turns[0].overflow && !turns[1].overflow);
}

#[test]
fn a_turn_is_bounded_in_text_in_bytes_and_in_blocks() {
    let one = |block: Value| json!({"type": "assistant", "message": {"content": [block]}});
    let repeated = |block: &dyn Fn(usize) -> Value, times: usize| {
        let all: Vec<Value> = (0..times).map(|n| one(block(n))).collect();
        let turns = ended(&all);
        assert!(turns[0].overflow);
        blocks(&turns[0])
    };
    let call =
        |n: usize| json!({"type": "tool_use", "id": format!("t{n}"), "name": "f", "input": 1});
    assert_eq!(repeated(&call, TURN_BLOCKS + 5).len(), TURN_BLOCKS);
    let words = "w".repeat(500_000);
    let told = repeated(&|n| text(&format!("{n}{words}")), 12);
    assert!(visible_text(&told).len() <= TURN_TEXT_BYTES);
    assert_eq!(told.len(), 8);
    // as JSON each of these takes six bytes
    let quotes = "\u{1}".repeat(150_000);
    let told = repeated(
        &|n| json!({"type": "thinking", "thinking": format!("{n}{quotes}")}),
        12,
    );
    let kept = serde_json::to_string(&told).expect("JSON").len();
    assert!(kept <= TURN_BLOCK_BYTES && told.len() > 6, "{kept}");
    // and what only streams
    let start =
        json!({"type": "stream_event", "event": {"type": "message_start", "message": {"id": "m"}}});
    let block = json!({"type": "stream_event", "event": {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}});
    let delta = json!({"type": "stream_event", "event": {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": words}}});
    let turns = ended(&[vec![start, block], vec![delta; 12]].concat());
    assert_eq!(visible_text(&blocks(&turns[0])).len(), 8 * words.len());
    assert!(turns[0].overflow);
}

#[test]
fn system_words_are_rows_in_their_place() {
    let system = |data, complete| LogEvent {
        stream: OutputStream::System,
        complete,
        ..event(1, data)
    };
    let open = lines(&[assistant(text("one"))]);
    let notice =
        |field: &str, value: Value| json!({"type": "system", "subtype": "notice", field: value});
    let end = lines(&[
        notice("content", json!({"a": 1})),
        notice("message", json!("m")),
        notice("other", json!("x")),
        result(),
    ]);
    let built = run(&[
        event(0, &open),
        system("the machine rebooted\0", true),
        system("not yet", false),
        system(" \n", true),
        event(2, &end),
    ]);
    let rows: Vec<String> = built
        .iter()
        .map(|one| match one {
            Built::System(system) => format!("{} {}", system.ordinal, system.content),
            Built::Turn(turn) => format!("{} turn", turn.ordinal),
            Built::CliSession(id) => id.clone(),
        })
        .collect();
    assert_eq!(
        rows,
        [
            "0 the machine rebooted\u{fffd}",
            "1 {\"a\":1}",
            "2 m",
            "3 turn"
        ]
    );
    let mut places: Vec<(u64, u32)> = built
        .iter()
        .filter_map(|one| match one {
            Built::System(system) => Some((system.index, system.line)),
            _ => None,
        })
        .collect();
    places.dedup();
    assert_eq!(places.len(), 3, "each row has a place of its own");
}
