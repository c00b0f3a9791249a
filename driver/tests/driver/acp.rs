//! An agent of the Agent Client Protocol.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bex_proto::driver::{DriverState, TurnState};
use bex_proto::launch::{AgentSpec, Permissions};
use serde_json::Value;

use crate::sandbox::{Sandbox, eventually, logged};

/// Built beside the tests.
fn agent() -> String {
    let tests = PathBuf::from(
        std::env::current_exe()
            .expect("a path")
            .parent()
            .expect("deps"),
    );
    let agent = tests
        .parent()
        .expect("target")
        .join("examples/scripted_agent");
    agent.display().to_string()
}

pub fn sandbox(permissions: Permissions, env: &[(&str, &str)]) -> Sandbox {
    let env = env
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Sandbox::new(AgentSpec::Acp {
        argv: vec![agent()],
        env: env.collect::<BTreeMap<_, _>>(),
        permissions,
        credential_files: Vec::new(),
    })
}

async fn speak(sandbox: &Sandbox, turn: u32, prompt: &str, priming: Option<&str>) -> Vec<Value> {
    assert_eq!(sandbox.turn(turn, prompt, priming).await, 202);
    let parts = sandbox.parts(turn).await;
    parts
        .iter()
        .map(|p| serde_json::from_str(p).expect("JSON"))
        .collect()
}

fn kinds(parts: &[Value]) -> Vec<&str> {
    parts
        .iter()
        .map(|p| p["type"].as_str().expect("a type"))
        .collect()
}

fn text(parts: &[Value]) -> String {
    parts
        .iter()
        .filter(|p| p["type"] == "text-delta")
        .filter_map(|p| p["delta"].as_str())
        .collect()
}

#[tokio::test]
async fn work_becomes_parts() {
    let sandbox = sandbox(Permissions::Allow, &[]).start().await;
    let parts = speak(&sandbox, 1, "work", None).await;
    assert_eq!(
        kinds(&parts),
        [
            "reasoning-start",
            "reasoning-delta",
            "data-acp-plan",
            "reasoning-end",
            "tool-input-start",
            "tool-input-available",
            "data-acp-diff",
            "tool-output-available",
            "text-start",
            "text-delta",
            "text-end",
        ]
    );
    assert_eq!(sandbox.ended(1).await.state, TurnState::Succeeded);
    assert!(sandbox.status().and_then(|s| s.agent_session_id).is_some());
}

#[tokio::test]
async fn one_session_over_turns_and_priming_only_for_an_agent_that_knows_nothing() {
    let sandbox = sandbox(Permissions::Allow, &[]).start().await;
    let first = speak(&sandbox, 1, "one", Some("earlier")).await;
    assert_eq!(kinds(&first)[0], "data-bex-continuity");
    assert!(
        text(&first).ends_with(r#"heard ["earlier", "one"]"#),
        "{}",
        text(&first)
    );
    let second = speak(&sandbox, 2, "two", Some("earlier")).await;
    assert!(
        text(&second).ends_with(r#"heard ["two"]"#),
        "{}",
        text(&second)
    );
    assert!(!kinds(&second).contains(&"data-bex-continuity"));
    let session = |parts: &[Value]| text(parts).split(' ').next().map(str::to_owned);
    assert_eq!(session(&first), session(&second), "the same session");
}

#[tokio::test]
async fn a_crash_fails_the_turn_and_the_next_one_gets_a_fresh_agent() {
    let sandbox = sandbox(Permissions::Allow, &[]).start().await;
    let parts = speak(&sandbox, 1, "crash", None).await;
    assert_eq!(
        kinds(&parts),
        ["text-start", "text-delta", "text-end", "error"]
    );
    let error = parts[3]["errorText"].as_str().expect("a text");
    assert!(
        error.contains('9') && error.contains("assertion failed"),
        "{error}"
    );
    assert_eq!(sandbox.ended(1).await.state, TurnState::Failed);
    eventually("idle", || {
        sandbox
            .status()
            .is_some_and(|s| s.state == DriverState::Idle)
    })
    .await;
    let parts = speak(&sandbox, 2, "two", Some("earlier")).await;
    assert!(
        text(&parts).ends_with(r#"heard ["earlier", "two"]"#),
        "{}",
        text(&parts)
    );
    assert_eq!(sandbox.ended(2).await.state, TurnState::Succeeded);
}

#[tokio::test]
async fn an_agent_that_can_load_its_session_is_not_primed() {
    let sandbox = sandbox(Permissions::Allow, &[("AGENT_LOADS", "1")])
        .start()
        .await;
    let first = speak(&sandbox, 1, "one", None).await;
    speak(&sandbox, 2, "crash", None).await;
    let third = speak(&sandbox, 3, "three", Some("earlier")).await;
    assert_eq!(kinds(&third)[0], "data-bex-continuity");
    assert_eq!(third[0]["data"]["mode"], "loaded");
    assert!(
        text(&third).ends_with(r#"heard ["three"]"#),
        "{}",
        text(&third)
    );
    let session = |parts: &[Value]| text(parts).split(' ').next().map(str::to_owned);
    assert_eq!(session(&first), session(&third), "the old session");
}

#[tokio::test]
async fn a_fresh_sandbox_s_agent_loads_the_session_that_the_record_names_or_is_told() {
    let priming = r#"{"turns":[{"turn":1,"prompt":"mend the roof","said":[]}],"omittedTurns":0,
        "truncated":false,"originalTask":"mend the roof","agentSessionId":"s-of-before"}"#;
    // loads it and shows it; can not load it; loads something that it does not show; can load nothing
    type Env = &'static [(&'static str, &'static str)];
    let cases: [(Env, &str, &str); 4] = [
        (&[("AGENT_LOADS", "1")], "loaded", "s-of-before"),
        (
            &[("AGENT_LOADS", "1"), ("AGENT_LOST", "1")],
            "preamble",
            "s-",
        ),
        (
            &[("AGENT_LOADS", "1"), ("AGENT_FORGETS", "1")],
            "preamble",
            "s-of-before",
        ),
        (&[], "preamble", "s-"),
    ];
    for (env, mode, session) in cases {
        let sandbox = sandbox(Permissions::Allow, env).start().await;
        let parts = speak(&sandbox, 2, "two", Some(priming)).await;
        assert_eq!(
            kinds(&parts)
                .iter()
                .filter(|kind| **kind == "data-bex-continuity")
                .count(),
            1,
            "shown once: {parts:?}"
        );
        assert_eq!(parts[0]["data"]["mode"], mode, "{env:?}");
        let said = text(&parts);
        assert!(said.starts_with(session), "{env:?}: {said}");
        assert_eq!(said.contains("mend the roof"), mode == "preamble", "{said}");
        assert!(
            said.ends_with(r#""two"]"#) || said.ends_with(r#"heard ["two"]"#),
            "{said}"
        );
        // the next sandbox is told of the session that is spoken in now
        eventually("idle", || {
            sandbox
                .status()
                .is_some_and(|s| s.state == DriverState::Idle)
        })
        .await;
        let kept = sandbox.status().and_then(|s| s.agent_session_id);
        assert!(
            kept.is_some_and(|kept| said.starts_with(&kept)),
            "{env:?}: {said}"
        );
    }
}

#[tokio::test]
async fn permissions_are_answered_by_the_profile_and_shown() {
    for (permissions, chosen) in [(Permissions::Allow, "once"), (Permissions::Deny, "no")] {
        let sandbox = sandbox(permissions, &[]).start().await;
        let parts = speak(&sandbox, 1, "ask", None).await;
        assert_eq!(parts[0]["type"], "data-acp-permission");
        assert_eq!(parts[0]["data"]["selected"], chosen);
        assert_eq!(parts[0]["data"]["toolCallId"], "t1-c1");
        assert!(
            text(&parts).contains(&format!(r#""optionId":"{chosen}""#)),
            "{}",
            text(&parts)
        );
    }
}

#[tokio::test]
async fn files_are_served_and_terminals_are_not() {
    let sandbox = sandbox(Permissions::Allow, &[]).start().await;
    speak(&sandbox, 1, "write", None).await;
    let file = sandbox.launch.workdir.join("made/by-agent.txt");
    assert_eq!(std::fs::read_to_string(file).expect("written"), "hello");
    let parts = speak(&sandbox, 2, "terminal", None).await;
    assert!(text(&parts).contains("-32601"), "{}", text(&parts));
}

#[tokio::test]
async fn stop_cancels_and_the_agent_lives_on() {
    let sandbox = sandbox(Permissions::Allow, &[]).start().await;
    assert_eq!(sandbox.turn(1, "wait", None).await, 202);
    eventually("it waits", || logged(&sandbox.log_path(1)).len() >= 2).await;
    assert_eq!(sandbox.stop(1).await, 202);
    assert_eq!(sandbox.ended(1).await.state, TurnState::Stopped);
    let parts: Vec<Value> = sandbox
        .parts(1)
        .await
        .iter()
        .map(|p| serde_json::from_str(p).expect("JSON"))
        .collect();
    assert_eq!(text(&parts), "waitingcanceled", "partial speech is kept");
    let parts = speak(&sandbox, 2, "two", Some("earlier")).await;
    assert!(
        text(&parts).ends_with(r#"heard ["two"]"#),
        "{}",
        text(&parts)
    );
}

#[tokio::test]
async fn an_agent_that_does_not_hear_is_killed() {
    let sandbox = sandbox(Permissions::Allow, &[("AGENT_DEAF", "1")])
        .start()
        .await;
    assert_eq!(sandbox.turn(1, "wait", None).await, 202);
    eventually("it waits", || logged(&sandbox.log_path(1)).len() >= 2).await;
    assert_eq!(sandbox.stop(1).await, 202);
    assert_eq!(sandbox.ended(1).await.state, TurnState::Stopped);
    eventually("idle", || {
        sandbox
            .status()
            .is_some_and(|s| s.state == DriverState::Idle)
    })
    .await;
    let parts = speak(&sandbox, 2, "two", None).await;
    assert!(
        text(&parts).ends_with(r#"heard ["two"]"#),
        "{}",
        text(&parts)
    );
}

#[tokio::test]
async fn an_agent_that_cannot_start_is_an_error() {
    let mut sandbox = sandbox(Permissions::Allow, &[]);
    sandbox.launch.agent = AgentSpec::Acp {
        argv: vec!["/bin/false".into()],
        env: BTreeMap::new(),
        permissions: Permissions::Allow,
        credential_files: Vec::new(),
    };
    let sandbox = sandbox.start().await;
    let parts = speak(&sandbox, 1, "x", None).await;
    assert_eq!(kinds(&parts), ["error"]);
    assert_eq!(sandbox.ended(1).await.state, TurnState::Failed);
}
