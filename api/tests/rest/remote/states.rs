//! Every verb in every state.

use bex_proto::remote::{Answer as Does, Operation, RemoteState};

use super::*;

/// Brings a fresh session into a state.
async fn session_in(world: &World, machine: &Machine, state: RemoteState) -> String {
    let session = world.remote(machine, "interactive").await;
    let path = |verb| format!("/v1/remote-sessions/{session}/{verb}");
    match state {
        RemoteState::Active => {}
        RemoteState::Paused => {
            world
                .post(OPERATOR, &path("pause"), &Value::Null)
                .await
                .ok(202);
        }
        RemoteState::Ending => {
            world
                .post(OPERATOR, &path("stop"), &Value::Null)
                .await
                .ok(202);
        }
        RemoteState::Completed | RemoteState::Stopped | RemoteState::Error => {
            let body = json!({"state": state, "events": 0});
            world
                .post(&machine.token, &path("status"), &body)
                .await
                .ok(200);
            world.state(&session, state.as_str()).await;
        }
    }
    assert_eq!(
        world.remote_session(&session).await["state"],
        state.as_str()
    );
    session
}

impl World {
    pub async fn state(&self, session: &str, state: &str) {
        for _ in 0..1000 {
            if self.remote_session(session).await["state"] == state {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{session} is not {state}");
    }
}

#[tokio::test]
async fn each_operation_in_each_state_answers_by_the_table() {
    let world = World::new().await;
    let machine = world.machine().await;
    for state in RemoteState::ALL {
        for operation in Operation::ALL {
            let session = session_in(&world, &machine, *state).await;
            let path = |verb: &str| format!("/v1/remote-sessions/{session}/{verb}");
            let post = async |token: &str, verb: &str, body: Value| {
                world.post(token, &path(verb), &body).await
            };
            let answer = match operation {
                Operation::Read => {
                    world
                        .get(VIEWER, &format!("/v1/remote-sessions/{session}"))
                        .await
                }
                Operation::Chat => post(OPERATOR, "chat", json!({"content": "hi"})).await,
                Operation::Abort => post(OPERATOR, "abort", Value::Null).await,
                Operation::Stop => post(OPERATOR, "stop", Value::Null).await,
                Operation::Pause => post(OPERATOR, "pause", Value::Null).await,
                Operation::Resume => post(OPERATOR, "resume", Value::Null).await,
                Operation::Permission => {
                    post(
                        OPERATOR,
                        "permission",
                        json!({"requestId": "r", "allow": true}),
                    )
                    .await
                }
                Operation::Output => {
                    let one = line(0, &result());
                    world.report(&machine, &session, one.to_string()).await
                }
                Operation::Status => {
                    post(&machine.token, "status", json!({"state": "completed"})).await
                }
                Operation::Usage => {
                    let body = json!({"reportId": "r", "inputTokens": 1, "outputTokens": 1});
                    post(&machine.token, "usage", body).await
                }
                Operation::Import => post(&machine.token, "import", json!({})).await,
                Operation::Delete => {
                    world
                        .call(ADMIN, "DELETE", &format!("/v1/remote-sessions/{session}"))
                        .await
                }
            };
            let cell = format!("{operation:?} in {state}");
            let queued = matches!(
                operation,
                Operation::Chat
                    | Operation::Abort
                    | Operation::Stop
                    | Operation::Pause
                    | Operation::Resume
                    | Operation::Permission
            );
            match operation.answer(*state) {
                Does::Does if *operation == Operation::Delete => {
                    assert_eq!(answer.status, 204, "{cell}")
                }
                Does::Does if queued => assert_eq!(answer.status, 202, "{cell}"),
                Does::Does | Does::Already => assert_eq!(answer.status, 200, "{cell}"),
                Does::Refuses(code) => {
                    assert_eq!(answer.json()["code"], code.as_str(), "{cell}");
                }
            }
            let after = match (operation, state) {
                (Operation::Delete, state) if state.is_terminal() => continue,
                (Operation::Stop, RemoteState::Active | RemoteState::Paused) => "ending",
                (Operation::Pause, RemoteState::Active) => "paused",
                (Operation::Resume, RemoteState::Paused) => "active",
                (Operation::Status, RemoteState::Active | RemoteState::Paused) => "ending",
                (_, state) => state.as_str(),
            };
            assert_eq!(
                world.remote_session(&session).await["state"],
                after,
                "{cell}"
            );
        }
    }
}

#[tokio::test]
async fn a_paused_session_is_resumed_and_chats_again() {
    let world = World::new().await;
    let machine = world.machine().await;
    let session = world.remote(&machine, "interactive").await;
    let post = async |verb: &str, body: Value| {
        let path = format!("/v1/remote-sessions/{session}/{verb}");
        world.post(OPERATOR, &path, &body).await
    };
    post("pause", Value::Null).await.ok(202);
    let refused = post("chat", json!({"content": "hi"})).await;
    refused.refused("session_paused");
    assert_eq!(world.messages(&session).await.len(), 0);
    post("resume", Value::Null).await.ok(202);
    post("chat", json!({"content": "hi"})).await.ok(202);
    let taken = world
        .get(&machine.token, "/v1/machine/commands?waitSeconds=0")
        .await
        .ok(200);
    let kinds: Vec<_> = taken["commands"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["kind"].clone())
        .collect();
    assert_eq!(kinds, ["pause", "resume", "chat"]);
    assert_eq!(taken["commands"][2]["payload"], json!({"content": "hi"}));
    let id = taken["commands"][2]["id"].as_str().unwrap();
    let path = format!("/v1/machine/commands/{id}");
    let answer = world
        .post(&machine.token, &path, &json!({"done": true}))
        .await;
    assert_eq!(answer.status, 204);
}

#[tokio::test]
async fn a_chat_that_is_sent_twice_under_one_key_is_one_row() {
    let world = World::new().await;
    let machine = world.machine().await;
    let session = world.remote(&machine, "interactive").await;
    let path = format!("/v1/remote-sessions/{session}/chat");
    let body = json!({"content": "hi"});
    let first = world.post_keyed(OPERATOR, &path, "k", &body).await.ok(202);
    let second = world.post_keyed(OPERATOR, &path, "k", &body).await.ok(202);
    assert_eq!(first["commandId"], second["commandId"]);
    assert_eq!(world.messages(&session).await.len(), 1);
    let other = json!({"content": "other"});
    world
        .post_keyed(OPERATOR, &path, "k", &other)
        .await
        .refused("idempotency_conflict");
}

#[tokio::test]
async fn a_stop_waits_for_the_last_words_and_keeps_what_was_said() {
    let world = World::new().await;
    let machine = world.machine().await;
    let session = world.remote(&machine, "interactive").await;
    world
        .say(
            &machine,
            &session,
            &lines(&[assistant("1", text("half an ans"))]),
        )
        .await;
    let path = |verb: &str| format!("/v1/remote-sessions/{session}/{verb}");
    world
        .post(OPERATOR, &path("stop"), &Value::Null)
        .await
        .ok(202);
    let last = line(1, &assistant("2", text("wer")));
    world.say(&machine, &session, &[last]).await;
    let status = json!({"state": "completed", "events": 2});
    world
        .post(&machine.token, &path("status"), &status)
        .await
        .ok(200);
    world.state(&session, "stopped").await;
    let messages = world.messages(&session).await;
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0]["content"], "half an answer");
    assert_eq!(messages[0]["terminalReason"], "stopped");
    let late = line(2, &result());
    let late = world.report(&machine, &session, late.to_string()).await;
    late.refused("session_ended");
}

#[tokio::test]
async fn a_gap_is_told_and_what_comes_late_changes_nothing() {
    let world = World::new().await;
    let machine = world.machine().await;
    let session = world.remote(&machine, "interactive").await;
    let all = lines(&[
        assistant("1", text("one ")),
        assistant("2", text("two ")),
        assistant("3", text("three")),
        result(),
    ]);
    let some = [all[0].clone(), all[2].clone(), all[3].clone()];
    let answer = world.say(&machine, &session, &some).await;
    assert_eq!(answer["nextEventIndex"], 1);
    world.sql(&format!(
        "UPDATE remote_heads SET gap_since = gap_since - interval '31 seconds' WHERE session_id = '{session}'"
    ));
    for _ in 0..1000 {
        if !world.turns(&session).await.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let turns = world.turns(&session).await;
    assert_eq!(turns[0]["terminalReason"], "gap");
    assert_eq!(turns[0]["gaps"], json!([{"from": 1, "to": 1}]));
    assert_eq!(turns[0]["visibleText"], "one three");
    assert_eq!(
        world.say(&machine, &session, &all[1..2]).await["accepted"],
        1
    );
    world.read(&session).await;
    assert_eq!(world.turns(&session).await, turns);
    let rebuild = format!("/v1/remote-sessions/{session}/rebuild");
    world.post(ADMIN, &rebuild, &Value::Null).await.ok(202);
    world.read(&session).await;
    assert_eq!(
        world.turns(&session).await,
        turns,
        "made again, late events are late"
    );
    let page = world
        .get(VIEWER, &format!("/v1/remote-sessions/{session}/output"))
        .await
        .ok(200);
    assert_eq!(
        page["events"].as_array().unwrap().len(),
        4,
        "the log has them"
    );
}

#[tokio::test]
async fn an_end_before_events_that_are_there_waits_for_those_between() {
    let world = World::new().await;
    let machine = world.machine().await;
    let session = world.remote(&machine, "interactive").await;
    let all = lines(&[
        assistant("1", text("one ")),
        assistant("2", text("two ")),
        assistant("3", text("three")),
    ]);
    let some = [all[0].clone(), all[2].clone()];
    world.say(&machine, &session, &some).await;
    world.read(&session).await;
    let status = json!({"state": "completed", "events": 1});
    let path = format!("/v1/remote-sessions/{session}/status");
    world.post(&machine.token, &path, &status).await.ok(200);
    world.say(&machine, &session, &all[1..2]).await;
    world.state(&session, "completed").await;
    assert_eq!(
        world.turns(&session).await[0]["visibleText"],
        "one two three"
    );
}

#[tokio::test]
async fn a_reporter_may_ask_for_its_own_session_s_commands_alone() {
    let world = World::new().await;
    let machine = world.machine().await;
    let (one, two) = (
        world.remote(&machine, "interactive").await,
        world.remote(&machine, "interactive").await,
    );
    for session in [&one, &two] {
        let path = format!("/v1/remote-sessions/{session}/pause");
        world.post(OPERATOR, &path, &Value::Null).await.ok(202);
    }
    let path = format!("/v1/machine/commands?waitSeconds=0&sessionId={two}");
    let taken = world.get(&machine.token, &path).await.ok(200);
    let of: Vec<_> = taken["commands"].as_array().unwrap().iter().collect();
    assert_eq!(of.len(), 1);
    assert_eq!(of[0]["sessionId"], two);
    let rest = world
        .get(&machine.token, "/v1/machine/commands?waitSeconds=0")
        .await
        .ok(200);
    assert_eq!(rest["commands"][0]["sessionId"], one);
}
