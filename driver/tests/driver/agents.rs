//! A plain command as the agent.

use bex_proto::driver::{DriverState, TurnState};
use serde_json::Value;

use crate::sandbox::{Sandbox, eventually};

async fn speak(script: &str, prompt: &str, priming: Option<&str>) -> (Sandbox, Vec<Value>) {
    let sandbox = Sandbox::shell(script).start().await;
    assert_eq!(sandbox.turn(1, prompt, priming).await, 202);
    let parts = sandbox.parts(1).await;
    let parts = parts
        .iter()
        .map(|p| serde_json::from_str(p).expect("JSON"))
        .collect();
    (sandbox, parts)
}

fn kinds(parts: &[Value]) -> Vec<&str> {
    parts
        .iter()
        .map(|p| p["type"].as_str().expect("a type"))
        .collect()
}

fn text(parts: &[Value]) -> String {
    parts.iter().filter_map(|p| p["delta"].as_str()).collect()
}

#[tokio::test]
async fn lines_are_deltas_of_one_text() {
    let (sandbox, parts) = speak("cat; echo; echo two; printf three", "the prompt", None).await;
    assert_eq!(
        kinds(&parts),
        [
            "text-start",
            "text-delta",
            "text-delta",
            "text-delta",
            "text-end"
        ]
    );
    assert_eq!(text(&parts), "the prompt\ntwo\nthree");
    assert_eq!(sandbox.ended(1).await.state, TurnState::Succeeded);
}

#[tokio::test]
async fn priming_stands_before_the_prompt_and_is_shown_once_as_continuity() {
    let (_sandbox, parts) = speak("cat", "now", Some("earlier")).await;
    assert_eq!(kinds(&parts)[0], "data-bex-continuity");
    assert_eq!(text(&parts), "earlier\n\nnow");
    assert_eq!(
        kinds(&parts)
            .iter()
            .filter(|k| **k == "data-bex-continuity")
            .count(),
        1
    );
}

#[tokio::test]
async fn a_failing_program_is_an_error_and_leaves_the_driver_steerable() {
    let (sandbox, parts) = speak("echo said; echo why >&2; exit 7", "x", None).await;
    let end = sandbox.ended(1).await;
    assert_eq!(end.state, TurnState::Failed);
    let last = parts.last().expect("parts");
    assert_eq!(last["type"], "error");
    assert!(
        last["errorText"].as_str().is_some_and(|t| t.contains('7')),
        "{last}"
    );
    assert!(
        parts
            .iter()
            .any(|p| p["type"] == "data-acp-terminal" && p["data"]["output"] == "why\n")
    );
    eventually("idle", || {
        sandbox
            .status()
            .is_some_and(|s| s.state == DriverState::Idle)
    })
    .await;
    assert!(sandbox.status().and_then(|s| s.error).is_some());
    assert_eq!(sandbox.turn(2, "x", None).await, 202);
}

#[tokio::test]
async fn odd_output_is_kept_as_text() {
    let (sandbox, parts) = speak(
        r"printf 'nul\000 bad\377 \303'; sleep 0.2; printf '\251\n'; head -c 3000000 /dev/zero | tr '\0' 'z'",
        "x",
        None,
    )
    .await;
    let said = text(&parts);
    assert!(
        said.starts_with("nul\0 bad\u{fffd} é\n"),
        "{:?}",
        &said[..20]
    );
    assert_eq!(
        said.matches('z').count(),
        3_000_000,
        "a line without end comes in pieces"
    );
    assert!(!kinds(&parts).contains(&"data-truncated"));
    assert_eq!(sandbox.ended(1).await.state, TurnState::Succeeded);
}

#[tokio::test]
async fn the_environment_is_built_from_nothing() {
    let mut sandbox = Sandbox::shell("env; pwd");
    sandbox
        .launch
        .secrets
        .insert("MODEL_KEY".into(), "k3y".into());
    let sandbox = sandbox.start().await;
    assert_eq!(sandbox.turn(1, "x", None).await, 202);
    let parts: Vec<Value> = sandbox
        .parts(1)
        .await
        .iter()
        .map(|p| serde_json::from_str(p).expect("JSON"))
        .collect();
    let mut lines: Vec<_> = text(&parts).lines().map(str::to_owned).collect();
    let workdir = sandbox.launch.workdir.display().to_string();
    assert_eq!(lines.pop(), Some(workdir.clone()));
    // what a shell sets by itself
    lines.retain(|line| {
        !["_=", "PWD=", "SHLVL=", "OLDPWD="]
            .iter()
            .any(|own| line.starts_with(own))
    });
    lines.sort();
    let path = std::env::var("PATH").expect("a PATH");
    assert_eq!(
        lines,
        [
            format!("HOME={workdir}"),
            "MODEL_KEY=k3y".into(),
            format!("PATH={path}")
        ]
    );
}

#[tokio::test]
async fn stop_ends_what_the_program_started_too() {
    let script = "trap '' TERM; sleep 1000 & echo $! > child; echo ready; wait; wait; sleep 1000";
    let sandbox = Sandbox::shell(script).start().await;
    assert_eq!(sandbox.turn(1, "x", None).await, 202);
    let file = sandbox.launch.workdir.join("child");
    let pid = || {
        std::fs::read_to_string(&file)
            .ok()?
            .trim()
            .parse::<u32>()
            .ok()
    };
    eventually("the program runs", || pid().is_some()).await;
    let pid = pid().expect("just seen");
    assert_eq!(sandbox.stop(1).await, 202);
    let end = sandbox.ended(1).await;
    assert_eq!(end.state, TurnState::Stopped);
    let stat = format!("/proc/{pid}/stat");
    // gone, or a zombie that nobody reaps
    eventually("its child is gone", || {
        std::fs::read_to_string(&stat).map_or(true, |s| s.contains(") Z "))
    })
    .await;
}
