//! Runs are given by the server: one for each turn, on its messages, and the same when rows are made again.

use std::collections::BTreeSet;

use bex_proto::{Generation, RunId, TurnNo};
use bex_store::settle::SandboxAfter;

use super::*;
use crate::remote::{assistant, lines, result, text};

#[tokio::test]
async fn each_turn_of_an_agent_session_is_a_run_and_its_messages_say_which() {
    let world = World::new().await;
    let session = world.running().await;
    let said = [
        r#"{"type":"text-start","id":"1"}"#,
        r#"{"type":"text-delta","id":"1","delta":"hello"}"#,
        r#"{"type":"text-end","id":"1"}"#,
    ];
    world.speak(&session, &said).await;
    world
        .settle(&session, TurnNo(1), Generation(1), SandboxAfter::Idle)
        .await;
    world
        .post(
            OPERATOR,
            &path(&session, "/turns"),
            &json!({"prompt": "again"}),
        )
        .await
        .ok(201);
    let turns = world.get(VIEWER, &path(&session, "/turns")).await.ok(200);
    let runs = names(turns["turns"].as_array().unwrap(), "runId");
    assert!(runs.iter().all(|run| run.parse::<RunId>().is_ok()));
    assert_ne!(runs[0], runs[1]);
    let messages = world
        .get(VIEWER, &path(&session, "/messages"))
        .await
        .ok(200);
    let said = names(messages["messages"].as_array().unwrap(), "runId");
    assert_eq!(said, [&*runs[0], &runs[0], &runs[1]]);
    // a turn from before
    world.sql("UPDATE turns SET run_id = NULL WHERE turn = 1");
    let messages = world
        .get(VIEWER, &path(&session, "/messages"))
        .await
        .ok(200);
    let said: Vec<&Value> = messages["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| &message["runId"])
        .collect();
    assert_eq!(said, [&Value::Null, &Value::Null, &json!(runs[1])]);
    // nobody may choose one
    let chosen = json!({"prompt": "p", "runId": RunId::random()});
    world
        .post(OPERATOR, &path(&session, "/turns"), &chosen)
        .await
        .refused("unknown_field");
}

#[tokio::test]
async fn a_remote_turn_is_the_same_run_when_its_rows_are_made_again() {
    let world = World::new().await;
    let machine = world.machine().await;
    let session = world.remote(&machine, "interactive").await;
    let twin = world.remote(&machine, "interactive").await;
    let said = lines(&[
        assistant("1", text("one")),
        result(),
        assistant("2", text("two")),
        result(),
    ]);
    for session in [&session, &twin] {
        world.say(&machine, session, &said).await;
        world.read(session).await;
    }
    let runs = async |session: &str| names(&world.turns(session).await, "runId");
    let before = runs(&session).await;
    assert_eq!(before.len(), 2);
    assert!(before.iter().all(|run| run.parse::<RunId>().is_ok()));
    assert_eq!(names(&world.messages(&session).await, "runId"), before);
    // two sessions that say the same are four runs
    let all: BTreeSet<String> = before.iter().cloned().chain(runs(&twin).await).collect();
    assert_eq!(all.len(), 4);
    world.sql("UPDATE remote_turns SET run_id = NULL");
    assert_eq!(world.messages(&session).await[0]["runId"], Value::Null);
    let rebuild = format!("/v1/remote-sessions/{session}/rebuild");
    world.post(ADMIN, &rebuild, &Value::Null).await.ok(202);
    for _ in 0..1000 {
        let again = world.turns(&session).await;
        if again.len() == 2 && again.iter().all(|turn| turn["runId"].is_string()) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(runs(&session).await, before);
    assert_eq!(names(&world.messages(&session).await, "runId"), before);
}
