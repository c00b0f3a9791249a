use super::*;

const AT: &str = "2026-01-02T03:04:05.006Z";

fn map(updates: &[Value]) -> Vec<Value> {
    let (mut mapper, mut out) = (Mapper::new(TurnNo(2)), Vec::new());
    let now = AT.parse().expect("a time");
    for update in updates {
        let update = serde_json::from_value(update.clone()).expect("an update");
        mapper.update(update, now, &mut out);
    }
    mapper.end(now, &mut out);
    out
}

fn chunk(kind: &str, text: &str) -> Value {
    json!({"sessionUpdate": kind, "content": {"type": "text", "text": text}})
}

#[test]
fn text_and_thoughts_are_blocks_and_the_echo_is_left_out() {
    let bex = json!({"bex": {"at": AT}});
    let end = json!({"bex": {"at": AT, "endAt": AT}});
    assert_eq!(
        map(&[
            chunk("user_message_chunk", "do it"),
            chunk("agent_thought_chunk", "hm"),
            chunk("agent_message_chunk", "a"),
            chunk("agent_message_chunk", "b"),
        ]),
        [
            json!({"type": "reasoning-start", "id": "t2-0", "providerMetadata": bex}),
            json!({"type": "reasoning-delta", "id": "t2-0", "delta": "hm"}),
            json!({"type": "reasoning-end", "id": "t2-0", "providerMetadata": end}),
            json!({"type": "text-start", "id": "t2-1", "providerMetadata": bex}),
            json!({"type": "text-delta", "id": "t2-1", "delta": "a"}),
            json!({"type": "text-delta", "id": "t2-1", "delta": "b"}),
            json!({"type": "text-end", "id": "t2-1", "providerMetadata": end}),
        ]
    );
}

#[test]
fn a_tool_says_its_input_once_its_diffs_when_they_change_and_its_end_once() {
    let diff = json!([{"type": "diff", "path": "/w/a", "oldText": "x", "newText": "y"}]);
    let out = map(&[
        json!({"sessionUpdate": "tool_call", "toolCallId": "c", "title": "Edit a", "kind": "edit", "status": "pending"}),
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "in_progress", "rawInput": {"path": "a"}}),
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "content": diff}),
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "content": diff, "status": "completed", "rawOutput": {"ok": 1}}),
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed"}),
    ]);
    assert_eq!(
        out,
        [
            json!({"type": "tool-input-start", "toolCallId": "t2-c", "toolName": "edit", "dynamic": true, "providerExecuted": true, "title": "Edit a"}),
            json!({"type": "tool-input-available", "toolCallId": "t2-c", "toolName": "edit", "input": {"path": "a"}, "dynamic": true, "providerExecuted": true,
                "providerMetadata": {"bex": {"at": AT}}, "title": "Edit a"}),
            json!({"type": "data-acp-diff", "id": "t2-c-diff-0",
                "data": {"toolCallId": "t2-c", "path": "/w/a", "oldText": "x", "newText": "y"}}),
            json!({"type": "tool-output-available", "toolCallId": "t2-c", "output": {"ok": 1}, "dynamic": true, "providerExecuted": true}),
        ]
    );
}

#[test]
fn a_failed_tool_and_one_that_was_never_announced() {
    let out = map(&[
        json!({"sessionUpdate": "tool_call_update", "toolCallId": "z", "status": "failed",
        "content": [{"type": "content", "content": {"type": "text", "text": "no such file"}}]}),
    ]);
    let kinds: Vec<_> = out
        .iter()
        .map(|p| p["type"].as_str().expect("a type"))
        .collect();
    assert_eq!(
        kinds,
        [
            "tool-input-start",
            "tool-input-available",
            "tool-output-error"
        ]
    );
    assert_eq!(out[2]["errorText"], "no such file");
}

#[test]
fn plans_have_a_stable_id_and_other_kinds_are_transient() {
    let entry = json!({"content": "look", "priority": "high", "status": "pending"});
    let out = map(&[
        json!({"sessionUpdate": "plan", "entries": [entry]}),
        json!({"sessionUpdate": "available_commands_update", "availableCommands": []}),
    ]);
    assert_eq!(
        out,
        [
            json!({"type": "data-acp-plan", "id": "plan-2", "data": {"entries": [entry]}}),
            json!({"type": "data-acp-available-commands", "data": {"availableCommands": []}, "transient": true}),
        ]
    );
}

#[test]
fn nothing_of_a_tool_s_output_is_lost() {
    let content = json!([{"type": "content", "content": {"type": "text", "text": "shown"}}]);
    for (fields, output) in [
        (json!({}), json!(null)),
        (json!({"content": content}), json!("shown")),
        (json!({"rawOutput": [1]}), json!([1])),
        (
            json!({"rawOutput": [1], "content": content}),
            json!({"rawOutput": [1], "content": "shown"}),
        ),
    ] {
        let mut update =
            json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": "completed"});
        for (name, value) in fields.as_object().expect("fields") {
            update[name] = value.clone();
        }
        assert_eq!(
            map(&[update]).last().map(|p| p["output"].clone()),
            Some(output)
        );
    }
}

#[test]
fn a_text_too_long_for_a_part_comes_in_pieces() {
    let text = "é\u{1}".repeat(400_000);
    let out = map(&[chunk("agent_message_chunk", &text)]);
    assert!(
        out.len() > 3
            && out
                .iter()
                .all(|p| p.to_string().len() <= bex_proto::limits::PART_BYTES)
    );
    let joined: String = out.iter().filter_map(|p| p["delta"].as_str()).collect();
    assert!(joined == text);
}

#[test]
fn a_call_that_is_over_says_nothing_again() {
    let diff = json!([{"type": "diff", "path": "/w/a", "oldText": "x", "newText": "y"}]);
    let update = |status: &str| json!({"sessionUpdate": "tool_call_update", "toolCallId": "c", "status": status, "content": diff});
    let out = map(&[update("completed"), update("completed"), update("failed")]);
    let kinds: Vec<_> = out.iter().filter_map(|p| p["type"].as_str()).collect();
    assert_eq!(
        kinds,
        [
            "tool-input-start",
            "tool-input-available",
            "data-acp-diff",
            "tool-output-available"
        ]
    );
}
