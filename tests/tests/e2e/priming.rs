//! A conversation goes on in another sandbox: the agent there is told what was said.

use std::path::Path;
use std::time::Duration;

use bex_tests::client::NewSession;
use bex_tests::scenario::{settled, stored};
use bex_tests::stack::{WORKSPACE, bin_dir};
use bex_tests::{Stack, StackOptions};
use http::{Method, StatusCode};
use serde_json::{Value, json};

fn spoken(parts: &[(bex_proto::PartId, bytes::Bytes)], turn: u32) -> (String, Vec<Value>) {
    let turn = parts.iter().filter(|(id, _)| id.turn.0 == turn);
    let parts: Vec<Value> = turn
        .map(|(_, bytes)| serde_json::from_slice(bytes).unwrap())
        .collect();
    let text = parts
        .iter()
        .filter(|p| p["type"] == "text-delta")
        .filter_map(|p| p["delta"].as_str())
        .collect();
    (text, parts)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redispatched_agent_answers_a_question_about_turn_1() {
    let stack = Stack::start(StackOptions {
        idle_grace: Some(Duration::from_secs(1)),
        ..StackOptions::default()
    })
    .await
    .unwrap();
    let api = stack.operator();
    let new = NewSession::new(WORKSPACE, "demo", "paint the fence green parts=4");
    let session = api.create(&new).await.unwrap();
    settled(&api, &session, 1).await.unwrap();
    stack.sandbox_gone(&session).await.unwrap();
    let begun = api
        .begin_turn(&session, "what was it? recall=1 parts=2")
        .await
        .unwrap();
    assert_eq!(begun.status, 201, "{}", begun.json());
    let turn = settled(&api, &session, 2).await.unwrap();
    assert_eq!(turn.verdict, "complete");
    let parts = stored(&api, &session).await.unwrap();
    let (text, said) = spoken(&parts, 2);
    assert!(
        text.starts_with("In turn 1 I was asked: paint the fence green parts=4\n"),
        "{text}"
    );
    // told once, without the words: a replay does not show them as new talk
    let shown: Vec<_> = said
        .iter()
        .filter(|p| p["type"] == "data-bex-continuity")
        .collect();
    assert_eq!(shown.len(), 1);
    assert_eq!(shown[0]["data"]["mode"], "preamble");
    assert!(!shown[0].to_string().contains("fence"));
    let mut replay = stack.watch(&session).await.unwrap();
    replay.to_end().await.unwrap();
    assert_eq!(replay.of_kind("data-bex-continuity").len(), 1);

    let priming = async |query: &str| {
        let path = format!("/v1/agent-sessions/{session}/priming{query}");
        api.call(Method::GET, &path, None).await.unwrap()
    };
    let all: Value = priming("").await.expect(StatusCode::OK).unwrap();
    assert_eq!(all["turns"][0]["prompt"], "paint the fence green parts=4");
    assert_eq!(
        (&all["omittedTurns"], &all["truncated"]),
        (&0.into(), &false.into())
    );
    assert!(!all.to_string().contains("\"output\""));
    let some: Value = priming("?budgetBytes=300")
        .await
        .expect(StatusCode::OK)
        .unwrap();
    assert_eq!(some["omittedTurns"], 1, "{some}");
    assert!(some["turns"].to_string().len() <= 302);
    assert_eq!(some["turns"][0]["turn"], 2, "{some}");
    assert_eq!(
        priming("?budgetBytes=1048577").await.code(),
        "invalid_request"
    );
    let path = format!("/v1/agent-sessions/{session}/priming");
    let strange = stack
        .stranger()
        .call(Method::GET, &path, None)
        .await
        .unwrap();
    assert_eq!(strange.status, StatusCode::NOT_FOUND);
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_can_load_its_session_in_a_fresh_sandbox_does_and_else_it_is_told() {
    let stack = Stack::start(StackOptions {
        idle_grace: Some(Duration::from_secs(1)),
        ..StackOptions::default()
    })
    .await
    .unwrap();
    let api = stack.operator();
    let sessions = tempfile::tempdir().unwrap();
    let agent = bin_dir().unwrap().join("bex-demo-agent");
    let word = |path: &Path| path.display().to_string();
    let mut new = NewSession::new(WORKSPACE, "acp", "paint the fence green parts=4");
    new.body["agent"]["args"] = json!([word(&agent), "--sessions", word(sessions.path())]);
    let session = api.create(&new).await.unwrap();
    settled(&api, &session, 1).await.unwrap();
    for (turn, mode) in [(2, "loaded"), (3, "preamble")] {
        stack.sandbox_gone(&session).await.unwrap();
        if mode == "preamble" {
            // the agent's own memory is lost
            for kept in std::fs::read_dir(sessions.path()).unwrap() {
                std::fs::remove_file(kept.unwrap().path()).unwrap();
            }
        }
        let prompt = "what was it? recall=1 parts=2";
        let begun = api.begin_turn(&session, prompt).await.unwrap();
        assert_eq!(begun.status, 201, "{}", begun.json());
        let settled = settled(&api, &session, turn).await.unwrap();
        assert_eq!(settled.verdict, "complete", "{settled:?}");
        let (text, said) = spoken(&stored(&api, &session).await.unwrap(), turn);
        assert!(
            text.starts_with("In turn 1 I was asked: paint the fence green parts=4\n"),
            "{turn}: {text}"
        );
        let shown: Vec<_> = said
            .iter()
            .filter(|p| p["type"] == "data-bex-continuity")
            .collect();
        assert_eq!(shown.len(), 1, "{turn}");
        assert_eq!(shown[0]["data"]["mode"], mode);
    }
    stack.stop().await.unwrap();
}
