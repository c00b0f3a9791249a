//! SIGKILL in the middle of a live session: the transcript is whole in the end, and a viewer that resumes sees each part once.

use bex_proto::SessionId;
use bex_proto::session::Phase;
use bex_tests::client::{Ending, NewSession, Viewer};
use bex_tests::scenario::{STEP, reaches, saw_everything, settled, stored, stored_at_least};
use bex_tests::stack::{Fsync, LogRules, WORKSPACE};
use bex_tests::tally::Parts;
use bex_tests::{Stack, StackOptions, eventually};

/// The agent says 200 lines, waits for the gate, says 200 more.
const PROMPT: &str = "work on whatever happens parts=400 gate=go";
const GATE: &str = "go";

async fn begin(stack: &Stack) -> (SessionId, Viewer) {
    let new = NewSession::new(WORKSPACE, "demo", PROMPT);
    let session = stack.operator().create(&new).await.unwrap();
    let mut viewer = stack.watch(&session).await.unwrap();
    viewer
        .until(|e| e.id.is_some_and(|id| id.index.0 >= 100))
        .await
        .unwrap();
    (session, viewer)
}

/// Reads on from where a viewer stood, again and again if need be, until the end is said.
async fn resume_to_end(stack: &Stack, session: &SessionId, mut viewer: Viewer) -> Parts {
    let mut seen = Vec::new();
    for _ in 0..20 {
        let ending = viewer.to_end().await.unwrap();
        seen.extend(viewer.parts());
        if ending == Ending::Done {
            return seen;
        }
        let cursor = seen.last().map(|(id, _)| *id);
        viewer = eventually("the stream is resumed", STEP, async || {
            stack.watch_from(session, cursor).await.ok()
        })
        .await
        .unwrap();
    }
    panic!(
        "the stream never came to its end; {} parts seen",
        seen.len()
    );
}

async fn is_whole(stack: &Stack, session: &SessionId, seen: &Parts) {
    let api = stack.operator();
    let turn = settled(&api, session, 1).await.unwrap();
    assert_eq!(turn.verdict, "complete", "{turn:?}");
    reaches(&api, session, Phase::Completed).await.unwrap();
    let parts = stored(&api, session).await.unwrap();
    let lines = parts
        .iter()
        .filter(|(_, part)| String::from_utf8_lossy(part).contains("Line "))
        .count();
    assert!(lines >= 400, "{lines} lines of 400 are stored");
    saw_everything(&parts, seen).unwrap();
    let mut replay = stack.watch(session).await.unwrap();
    assert_eq!(replay.to_end().await.unwrap(), Ending::Done);
    saw_everything(&parts, &replay.parts()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_is_killed() {
    let mut stack = Stack::start(StackOptions::default()).await.unwrap();
    let (session, viewer) = begin(&stack).await;
    stack.kill9_gateway().unwrap();
    // the agent goes on while nobody listens
    stack.open_gate(&session, GATE).unwrap();
    stack.restart_gateway().await.unwrap();
    let seen = resume_to_end(&stack, &session, viewer).await;
    is_whole(&stack, &session, &seen).await;
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_is_killed_and_the_agent_waits_for_it() {
    let mut stack = Stack::start(StackOptions::default()).await.unwrap();
    let (session, viewer) = begin(&stack).await;
    stack.kill9_gateway().unwrap();
    stack.restart_gateway().await.unwrap();
    let mut first = viewer;
    assert_eq!(first.to_end().await.unwrap(), Ending::Cut);
    let mut seen = first.parts();
    let resumed = stack.watch_from(&session, first.cursor()).await.unwrap();
    stack.open_gate(&session, GATE).unwrap();
    seen.extend(resume_to_end(&stack, &session, resumed).await);
    is_whole(&stack, &session, &seen).await;
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_is_killed() {
    let mut stack = Stack::start(StackOptions::default()).await.unwrap();
    let (session, mut viewer) = begin(&stack).await;
    let driver = stack.sandboxes.of(&session);
    stack.kill9_api().unwrap();
    stack.open_gate(&session, GATE).unwrap();
    // the stream does not need the api: it goes on to the agent's end
    assert_eq!(viewer.to_end().await.unwrap(), Ending::Done);
    assert_eq!(
        stack.sandboxes.of(&session),
        driver,
        "the driver outlives the api"
    );
    stack.restart_api().await.unwrap();
    is_whole(&stack, &session, &viewer.parts()).await;
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_is_killed_before_the_sandbox_is_made() {
    let mut stack = Stack::start(StackOptions::default()).await.unwrap();
    let new = NewSession::new(WORKSPACE, "demo", "say little parts=5");
    let session = stack.operator().create(&new).await.unwrap();
    stack.kill9_api().unwrap();
    stack.restart_api().await.unwrap();
    let turn = settled(&stack.operator(), &session, 1).await.unwrap();
    assert_eq!(turn.verdict, "complete", "{turn:?}");
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_restarts() {
    let mut stack = Stack::start(StackOptions {
        // what was acknowledged must survive the crash
        fsync: Fsync::On,
        logs: LogRules {
            expected: vec!["database", "store", "postgres", "connection"],
        },
        ..StackOptions::default()
    })
    .await
    .unwrap();
    let (session, viewer) = begin(&stack).await;
    stored_at_least(&stack.operator(), &session, 50)
        .await
        .unwrap();
    stack.kill9_postgres();
    stack.open_gate(&session, GATE).unwrap();
    stack.start_postgres().unwrap();
    stack.ready().await.unwrap();
    let seen = resume_to_end(&stack, &session, viewer).await;
    is_whole(&stack, &session, &seen).await;
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sandbox_is_killed() {
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let (session, mut viewer) = begin(&stack).await;
    let seen_before = viewer.parts().len();
    stack.kill_sandbox(&session).await.unwrap();
    // terminal ends like a terminal session, never as an error
    assert_eq!(viewer.to_end().await.unwrap(), Ending::Done);
    assert_eq!(viewer.of_kind("error").len(), 0);
    let api = stack.operator();
    let turn = settled(&api, &session, 1).await.unwrap();
    assert_eq!(
        (turn.verdict.as_str(), turn.reason.as_deref()),
        ("truncated", Some("sandbox_lost"))
    );
    assert_eq!(turn.ended_by.as_deref(), Some("lost"));
    reaches(&api, &session, Phase::Failed).await.unwrap();
    let parts = stored(&api, &session).await.unwrap();
    assert!(parts.len() >= seen_before, "what was shown is stored");
    let mut replay = stack.watch(&session).await.unwrap();
    assert_eq!(replay.to_end().await.unwrap(), Ending::Done);
    saw_everything(&parts, &replay.parts()).unwrap();
    let marks = replay.of_kind("data-bex-incomplete");
    assert_eq!(marks.len(), 1, "{marks:?}");
    assert_eq!(marks[0]["data"]["reason"], "sandbox_lost");
    stack.stop().await.unwrap();
}
