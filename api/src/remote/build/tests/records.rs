//! Programs' own records.

use super::*;

fn told(record: &str) -> Vec<String> {
    let texts = import(record).into_iter().map(|one| match one {
        Imported::User { text, .. } => {
            format!("user: {}", text.chars().take(40).collect::<String>())
        }
        Imported::Turn(turn) => format!("{}: {}", turn.terminal, kinds(&blocks(&turn)).join(" ")),
    });
    texts.collect()
}

#[test]
fn a_rollout_tells_prompts_and_turns() {
    let expected = [
        "user: list the files",
        "result: reasoning tool_use tool_result text",
        "user: thanks",
        "process_exit: text",
    ];
    // the second prompt of this recording is only among what the model is told
    let without: String = ROLLOUT
        .split_inclusive('\n')
        .filter(|line| !line.contains("user_message"))
        .collect();
    assert_eq!(told(&without), expected);
    let [
        Imported::User { at: Some(at), .. },
        Imported::Turn(turn),
        ..,
    ] = &import(&without)[..]
    else {
        panic!("a prompt and a turn");
    };
    assert_eq!(at.to_string(), "2026-01-05T10:00:01Z");
    assert_eq!(turn.started_at.to_string(), "2026-01-05T10:00:02Z");
    assert_eq!(turn.completed_at.to_string(), "2026-01-05T10:00:05.1Z");
}

#[test]
fn prompts_that_a_rollout_says_apart_are_the_ones_that_were_asked() {
    let line = |value: Value| format!("{value}\n");
    let asked = |text: &str| {
        line(json!({"type": "event_msg", "payload": {"type": "user_message", "message": text}}))
    };
    let model = |text: &str| {
        line(
            json!({"type": "response_item", "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}}),
        )
    };
    let answer = |text: &str| {
        line(
            json!({"type": "response_item", "payload": {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}}),
        )
    };
    let done = line(json!({"type": "event_msg", "payload": {"type": "task_complete"}}));
    let record = [
        model("# AGENTS.md instructions for /work"),
        model("some plugin's context"),
        model("one"),
        asked("one"),
        answer("1"),
        done,
        model("two"),
        asked("two"),
        answer("2"),
    ];
    assert_eq!(
        told(&record.concat()),
        [
            "user: one",
            "result: text",
            "user: two",
            "process_exit: text"
        ]
    );
}

#[test]
fn claudes_record_tells_prompts_and_turns_and_passes_over_what_is_broken() {
    let expected = [
        "user: Can you help me implement a new feature ",
        "result: text tool_use tool_result text tool_use tool_result",
        "user: Can you add a task for security review a",
        "process_exit: text tool_use tool_result",
    ];
    assert_eq!(told(RECORD), expected);
    let Imported::User {
        origin: Some(origin),
        at: Some(_),
        ..
    } = &import(RECORD)[0]
    else {
        panic!("a prompt with a name and a time");
    };
    assert_eq!(origin, "user:user_001");
    let expected = [
        "user: Here's a message with some **markdown** ",
        "result: text",
        "user: Let's test a very long message to see ho",
        // the program's own words that follow are no prompts
        "result: tool_use tool_result text tool_use",
        "user: Testing special characters: café, naïve,",
        "process_exit: tool_use",
    ];
    assert_eq!(told(EDGE_CASES), expected);
}

#[test]
fn an_interrupted_turn_is_aborted_and_keeps_its_tools_answer() {
    let user = |content: Value| json!({"type": "user", "uuid": "u", "message": {"role": "user", "content": content}});
    let interrupted = user(json!([
        {"type": "tool_result", "tool_use_id": "t1", "content": "x", "is_error": true},
        {"type": "text", "text": "[Request interrupted by user for tool use]"}]));
    let side = json!({"type": "user", "isSidechain": true, "message": {"role": "user", "content": "a sub-agent's task"}});
    let lines = [user(json!("do it")), assistant(tool()), side, interrupted];
    let record: String = lines.iter().map(|line| format!("{line}\n")).collect();
    assert_eq!(
        told(&record),
        ["user: do it", "aborted: tool_use tool_result"]
    );
}

#[test]
fn a_record_of_what_was_told_live_has_the_same_names() {
    let live = recorded(KINDS);
    let record: String = [1, 2]
        .iter()
        .map(|n| format!("{}\n", line(KINDS, *n)))
        .collect();
    let [Imported::Turn(turn)] = &import(&record)[..] else {
        panic!("a turn");
    };
    assert_eq!(origins(turn), origins(&live[0]));
    assert!(origins(turn).iter().all(Option::is_some));
}
