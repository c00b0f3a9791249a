//! What becomes a message, end to end.

use super::*;

#[tokio::test]
async fn text_and_tool_in_separate_events_are_one_row_with_its_blocks() {
    let world = World::new().await;
    let machine = world.machine().await;
    let session = world.remote(&machine, "interactive").await;
    let tool = json!({"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}});
    let said = lines(&[
        assistant("1", text("I look. ")),
        assistant("2", tool.clone()),
        json!({"type": "user", "message": {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "a"}]}}),
        assistant("3", text("Done.")),
        result(),
    ]);
    assert_eq!(world.say(&machine, &session, &said).await["accepted"], 5);
    world.read(&session).await;
    let messages = world.messages(&session).await;
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0]["content"], "I look. Done.");
    assert_eq!(
        messages[0]["contentBlocks"],
        json!([text("I look. "), tool, text("Done.")])
    );
    assert_eq!(messages[0]["source"], "remote_live");
    assert_eq!(messages[0]["terminalReason"], "result");
    let turns = world.turns(&session).await;
    assert_eq!(turns[0]["turnId"], messages[0]["turnId"]);
    assert_eq!(turns[0]["toolCallIds"], json!(["t1"]));
    assert_eq!(turns[0]["visibleText"], "I look. Done.");
    let view = world.remote_session(&session).await;
    assert_eq!(view["counters"]["messages"], 1);
    assert_eq!(view["counters"]["nextEventIndex"], 5);
}

#[tokio::test]
async fn a_turn_without_text_is_a_row_of_a_workflow_only() {
    let world = World::new().await;
    let machine = world.machine().await;
    let tool = json!({"type": "tool_use", "id": "t1", "name": "Bash", "input": {}});
    for (kind, rows) in [("interactive", 0), ("autonomous", 1)] {
        let session = world.remote(&machine, kind).await;
        let said = lines(&[assistant("1", tool.clone()), result()]);
        world.say(&machine, &session, &said).await;
        world.read(&session).await;
        let messages = world.messages(&session).await;
        assert_eq!(messages.len(), rows, "{kind}");
        let view = world.remote_session(&session).await;
        assert_eq!(view["counters"]["messages"], rows, "{kind}");
        assert_eq!(view["counters"]["turns"], 1, "{kind}");
        if rows == 1 {
            assert_eq!(messages[0]["content"], "");
        }
    }
}

#[tokio::test]
async fn a_whole_stream_again_under_new_indexes_and_its_record_add_nothing() {
    let world = World::new().await;
    let machine = world.machine().await;
    let session = world.remote(&machine, "interactive").await;
    let chat = json!({"content": "what is 2 + 2?"});
    let path = format!("/v1/remote-sessions/{session}/chat");
    world.post(OPERATOR, &path, &chat).await.ok(202);
    let talk = [
        json!({"type": "system", "subtype": "init", "session_id": "cli-1"}),
        assistant("1", text("4")),
        result(),
        assistant("2", text("and 5")),
        result(),
    ];
    world.say(&machine, &session, &lines(&talk)).await;
    world.read(&session).await;
    let before = world.messages(&session).await;
    assert_eq!(before.len(), 3);
    let again = world.say(&machine, &session, &lines(&talk)).await;
    assert_eq!(
        (&again["accepted"], &again["duplicates"]),
        (&json!(0), &json!(5))
    );
    let shifted: Vec<Value> = talk
        .iter()
        .enumerate()
        .map(|(n, l)| line(n + 5, l))
        .collect();
    assert_eq!(world.say(&machine, &session, &shifted).await["accepted"], 5);
    world.read(&session).await;
    assert_eq!(world.messages(&session).await, before);
    let record: String = [
        json!({"type": "user", "uuid": "p1", "timestamp": "2026-01-01T00:00:00Z",
               "message": {"role": "user", "content": "what is 2 + 2?"}}),
        assistant("1", text("4")),
        json!({"type": "user", "uuid": "p2", "timestamp": "2026-01-01T00:01:00Z",
               "message": {"role": "user", "content": "a question of before"}}),
        assistant("9", text("an answer of before")),
    ]
    .iter()
    .map(|one| format!("{one}\n"))
    .collect();
    let import = format!("/v1/remote-sessions/{session}/import");
    let send = async || {
        let request = world.request(&machine.token, "POST", &import);
        let body = Full::new(record.clone().into());
        world.send(request.body(body).unwrap()).await.ok(200)
    };
    assert_eq!(send().await["duplicate"], false);
    assert_eq!(send().await["duplicate"], true);
    world.read(&session).await;
    let after = world.messages(&session).await;
    assert_eq!(after[..3], before[..]);
    let new: Vec<&Value> = after[3..].iter().map(|m| &m["content"]).collect();
    assert_eq!(new, ["a question of before", "an answer of before"]);
    let view = world.remote_session(&session).await;
    assert_eq!(view["counters"]["messages"], 5);
    assert_eq!(view["cliSessionId"], "cli-1");
    let rebuild = format!("/v1/remote-sessions/{session}/rebuild");
    world.post(ADMIN, &rebuild, &Value::Null).await.ok(202);
    world.read(&session).await;
    assert_eq!(world.messages(&session).await, after);
    assert_eq!(
        world.remote_session(&session).await["counters"]["messages"],
        5
    );
}

#[tokio::test]
async fn agent_sessions_tell_messages_by_the_same_policy() {
    let world = World::new().await;
    let session = world.running().await;
    world
        .speak(
            &session,
            &[
                r#"{"type":"text-start","id":"a"}"#,
                r#"{"type":"text-delta","id":"a","delta":"Hel"}"#,
                r#"{"type":"text-delta","id":"a","delta":"lo"}"#,
                r#"{"type":"text-end","id":"a"}"#,
                r#"{"type":"tool-input-available","toolCallId":"t","toolName":"ls","input":{}}"#,
            ],
        )
        .await;
    let path = format!("/v1/agent-sessions/{session}/messages");
    let page = world.get(VIEWER, &path).await.ok(200);
    let messages = page["messages"].as_array().unwrap();
    let told: Vec<_> = messages
        .iter()
        .map(|m| (&m["position"], &m["role"], &m["content"]))
        .collect();
    assert_eq!(told[0].1, "user");
    assert_eq!(
        (told[1].0, told[1].1, told[1].2),
        (&json!(1), &json!("assistant"), &json!("Hello"))
    );
    assert_eq!(messages[1]["contentBlocks"][1]["type"], "tool_use");
    let page = world.get(VIEWER, &format!("{path}?limit=1")).await.ok(200);
    assert_eq!(page["nextAfter"], 0);
    let page = world
        .get(VIEWER, &format!("{path}?limit=1&after=0"))
        .await
        .ok(200);
    assert_eq!(page["messages"][0]["content"], "Hello");
    assert_eq!(page["nextAfter"], Value::Null);
}
