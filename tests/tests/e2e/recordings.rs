//! Recorded streams through driver, gateway and store to a replay. What is stored says what was recorded: parts that are no deltas byte by
//! byte and in order, the deltas of each text as what they join to, because the driver holds back ends that may become a secret and their
//! borders move by that. What viewers see is what is stored: every part byte-equal, in order, once.

use bex_proto::SessionId;
use bex_tests::client::{Ending, NewSession};
use bex_tests::recording::{Recording, shared};
use bex_tests::scenario::{same_said, saw_everything, settled, stored};
use bex_tests::stack::WORKSPACE;
use bex_tests::{Stack, StackOptions};

/// A profile whose driver is an older one: one log, no ids, no proof.
const OLD_FORM: &str = "play-legacy";

async fn play(stack: &Stack, profile: &str, recording: &Recording, pace: &str) -> SessionId {
    let name = stack.add_recording(recording).unwrap();
    let new = NewSession::new(WORKSPACE, profile, &format!("play {name}"))
        .autonomous("wf-recordings")
        .args(&[&name, pace]);
    stack.operator().create(&new).await.unwrap()
}

async fn replays_whole(stack: &Stack, session: &SessionId, recording: &Recording) {
    let name = recording.name();
    let turn = settled(&stack.operator(), session, 1).await.unwrap();
    assert_eq!(
        (turn.verdict.as_str(), turn.reason.as_deref()),
        ("complete", None),
        "{name}"
    );
    let parts = stored(&stack.operator(), session).await.unwrap();
    same_said(&parts, 1, &recording.parts).expect(&name);
    let mut replay = stack.watch(session).await.unwrap();
    assert_eq!(replay.to_end().await.unwrap(), Ending::Done, "{name}");
    saw_everything(&parts, &replay.parts()).expect(&name);
    let prompts = replay.of_kind("data-user-prompt");
    assert_eq!(prompts.len(), 1, "{name}");
    assert_eq!(prompts[0]["data"]["turn"], 1, "{name}");
    assert_eq!(replay.of_kind("data-bex-incomplete").len(), 0, "{name}");
}

async fn nobody_watched(profile: &str) {
    let Some(recordings) = shared() else { return };
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let mut sessions = Vec::new();
    for recording in &recordings {
        sessions.push(play(&stack, profile, recording, "max").await);
    }
    for (session, recording) in sessions.iter().zip(&recordings) {
        replays_whole(&stack, session, recording).await;
    }
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_recording_that_nobody_watched_replays_whole() {
    nobody_watched("play").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_form_of_log_and_stream_replays_whole_too() {
    nobody_watched(OLD_FORM).await;
}

/// The longest recording, so that there is a middle to speak of.
fn longest(recordings: Vec<Recording>) -> Recording {
    recordings
        .into_iter()
        .max_by_key(|r| r.parts.len())
        .unwrap()
}

async fn watched_by_many(profile: &str) {
    let Some(recordings) = shared() else { return };
    let recording = longest(recordings);
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let session = play(&stack, profile, &recording, "400").await;
    let mut first = stack.watch(&session).await.unwrap();
    let mut second = stack.watch(&session).await.unwrap();
    let mut leaver = stack.watch(&session).await.unwrap();
    leaver
        .until(|e| e.id.is_some_and(|id| id.index.0 >= 20))
        .await
        .unwrap();
    drop(leaver);
    let half = u32::try_from(recording.parts.len() / 2).unwrap();
    first
        .until(|e| e.id.is_some_and(|id| id.index.0 >= half))
        .await
        .unwrap();
    let mut late = stack.watch(&session).await.unwrap();
    for viewer in [&mut first, &mut second, &mut late] {
        assert_eq!(viewer.to_end().await.unwrap(), Ending::Done);
    }
    let turn = settled(&stack.operator(), &session, 1).await.unwrap();
    assert_eq!(turn.verdict, "complete", "{turn:?}");
    let parts = stored(&stack.operator(), &session).await.unwrap();
    same_said(&parts, 1, &recording.parts).unwrap();
    for viewer in [&first, &second, &late] {
        saw_everything(&parts, &viewer.parts()).unwrap();
        assert_eq!(viewer.of_kind("start").len(), 1, "one message per stream");
        assert_eq!(viewer.of_kind("finish").len(), 1, "one message per stream");
    }
    replays_whole(&stack, &session, &recording).await;
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_viewers_one_that_left_and_one_from_the_middle_see_the_same() {
    watched_by_many("play").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn viewers_of_the_old_form_see_the_same() {
    watched_by_many(OLD_FORM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_watched_half_way_and_left_replays_whole() {
    let Some(recordings) = shared() else { return };
    let recording = longest(recordings);
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let session = play(&stack, "play", &recording, "400").await;
    let half = u32::try_from(recording.parts.len() / 2).unwrap();
    let mut viewer = stack.watch(&session).await.unwrap();
    viewer
        .until(|e| e.id.is_some_and(|id| id.index.0 >= half))
        .await
        .unwrap();
    let cursor = viewer.cursor();
    let seen = viewer.parts();
    drop(viewer);
    replays_whole(&stack, &session, &recording).await;
    // whoever kept its cursor gets only the rest
    let mut rest = stack.watch_from(&session, cursor).await.unwrap();
    assert_eq!(rest.to_end().await.unwrap(), Ending::Done);
    assert_eq!(
        rest.of_kind("start").len(),
        0,
        "its message is already begun"
    );
    let parts = stored(&stack.operator(), &session).await.unwrap();
    let both: Vec<_> = seen.into_iter().chain(rest.parts()).collect();
    saw_everything(&parts, &both).unwrap();
    stack.stop().await.unwrap();
}
