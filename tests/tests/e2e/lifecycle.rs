//! Turns, stop, cancel, archive, delete.

use bex_proto::SessionId;
use bex_proto::session::Phase;
use bex_tests::client::{Ending, NewSession, Viewer};
use bex_tests::scenario::{reaches, saw_everything, settled, stored};
use bex_tests::stack::WORKSPACE;
use bex_tests::{Stack, StackOptions};
use std::time::Duration;

async fn create(stack: &Stack, prompt: &str) -> SessionId {
    let new = NewSession::new(WORKSPACE, "demo", prompt);
    stack.operator().create(&new).await.unwrap()
}

/// Waits until the demo agent talks.
async fn talks(stack: &Stack, session: &SessionId) -> Viewer {
    let mut viewer = stack.watch(session).await.unwrap();
    viewer.until(|e| e.kind() == "text-delta").await.unwrap();
    viewer
}

fn generation_of(stack: &Stack, session: &SessionId) -> Vec<u32> {
    stack
        .sandboxes
        .of(session)
        .iter()
        .map(|s| s.generation.0)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_turn_goes_to_the_live_driver_and_a_third_to_a_fresh_one() {
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let api = stack.operator();
    let session = create(&stack, "first parts=20").await;
    assert_eq!(
        settled(&api, &session, 1).await.unwrap().verdict,
        "complete"
    );
    reaches(&api, &session, Phase::Completed).await.unwrap();
    assert_eq!(generation_of(&stack, &session), [1]);

    let begun = api.begin_turn(&session, "second parts=20").await.unwrap();
    assert_eq!(begun.status, 201, "{}", begun.json());
    assert_eq!(begun.json()["turn"], 2);
    let ticket = begun.json()["ticket"].as_str().unwrap().to_owned();
    let mut poster = Viewer::post(
        stack.addresses.attach,
        &session,
        &ticket,
        r#"{"messages":[]}"#,
    )
    .await
    .unwrap();
    assert_eq!(poster.to_end().await.unwrap(), Ending::Done);
    let message = &poster.of_kind("start")[0]["messageId"];
    assert_eq!(*message, format!("durable-{session}-2"));
    assert!(
        poster.parts().iter().all(|(id, _)| id.turn.0 == 2),
        "no earlier history"
    );
    let turn = settled(&api, &session, 2).await.unwrap();
    assert_eq!(
        (turn.verdict.as_str(), &turn.rest["deliveryMode"]),
        ("complete", &"live".into())
    );
    assert_eq!(generation_of(&stack, &session), [1], "the same sandbox");

    stack.kill_sandbox(&session).await.unwrap();
    let begun = api.begin_turn(&session, "third parts=20").await.unwrap();
    assert_eq!(begun.status, 201, "{}", begun.json());
    let turn = settled(&api, &session, 3).await.unwrap();
    assert_eq!(
        (turn.verdict.as_str(), &turn.rest["deliveryMode"]),
        ("complete", &"fresh".into()),
        "{turn:?}"
    );

    let parts = stored(&api, &session).await.unwrap();
    let mut replay = stack.watch(&session).await.unwrap();
    assert_eq!(replay.to_end().await.unwrap(), Ending::Done);
    saw_everything(&parts, &replay.parts()).unwrap();
    let prompts = replay.of_kind("data-user-prompt");
    let texts: Vec<_> = prompts
        .iter()
        .map(|p| p["data"]["text"].as_str().unwrap())
        .collect();
    assert_eq!(
        texts,
        ["first parts=20", "second parts=20", "third parts=20"]
    );
    assert_eq!(replay.of_kind("start").len(), 1);
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_sandbox_is_removed_and_the_next_turn_gets_a_new_generation() {
    let stack = Stack::start(StackOptions {
        idle_grace: Some(Duration::from_secs(1)),
        ..StackOptions::default()
    })
    .await
    .unwrap();
    let api = stack.operator();
    let session = create(&stack, "first parts=5").await;
    settled(&api, &session, 1).await.unwrap();
    stack.sandbox_gone(&session).await.unwrap();
    let begun = api
        .begin_turn(&session, "second parts=5 gate=go")
        .await
        .unwrap();
    assert_eq!(begun.status, 201, "{}", begun.json());
    let mut viewer = stack.watch(&session).await.unwrap();
    viewer
        .until(|e| e.id.is_some_and(|id| id.turn.0 == 2))
        .await
        .unwrap();
    assert_eq!(generation_of(&stack, &session), [2]);
    stack.open_gate(&session, "go").unwrap();
    assert_eq!(viewer.to_end().await.unwrap(), Ending::Done);
    assert_eq!(
        settled(&api, &session, 2).await.unwrap().verdict,
        "complete"
    );
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_in_flight_refuses_another_and_can_be_stopped() {
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let api = stack.operator();
    let session = create(&stack, "never comes to an end hang parts=40").await;
    let mut viewer = talks(&stack, &session).await;
    let refused = api.begin_turn(&session, "too early").await.unwrap();
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (409, "turn_in_flight")
    );
    assert!(refused.headers.contains_key("retry-after"));

    let stopped = api.verb(&session, "turns/1/stop").await.unwrap();
    assert_eq!(stopped.status, 202, "{}", stopped.json());
    assert_eq!(viewer.to_end().await.unwrap(), Ending::Done);
    let turn = settled(&api, &session, 1).await.unwrap();
    assert_eq!(
        (turn.verdict.as_str(), turn.ended_by.as_deref()),
        ("complete", Some("stopped")),
        "{turn:?}"
    );
    reaches(&api, &session, Phase::Completed).await.unwrap();
    let parts = stored(&api, &session).await.unwrap();
    assert!(!parts.is_empty(), "partial speech is kept");
    saw_everything(&parts, &viewer.parts()).unwrap();

    let again = api.verb(&session, "turns/1/stop").await.unwrap();
    assert_eq!(
        (again.status.as_u16(), again.code().as_str()),
        (409, "not_live")
    );
    let begun = api.begin_turn(&session, "and on parts=3").await.unwrap();
    assert_eq!(begun.status, 201, "{}", begun.json());
    assert_eq!(
        settled(&api, &session, 2).await.unwrap().verdict,
        "complete"
    );
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_harvests_first_and_is_for_good() {
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let api = stack.operator();
    let session = create(&stack, "never comes to an end hang parts=40").await;
    let mut viewer = talks(&stack, &session).await;
    let canceled = api.verb(&session, "cancel").await.unwrap();
    assert_eq!(canceled.status, 200, "{}", canceled.json());
    reaches(&api, &session, Phase::Canceled).await.unwrap();
    assert_eq!(viewer.to_end().await.unwrap(), Ending::Done);
    let turn = settled(&api, &session, 1).await.unwrap();
    assert_eq!(turn.ended_by.as_deref(), Some("canceled"), "{turn:?}");
    let parts = stored(&api, &session).await.unwrap();
    let spoken = parts
        .iter()
        .filter(|(_, p)| String::from_utf8_lossy(p).contains("Line "))
        .count();
    assert_eq!(spoken, 20, "all that was said before is kept");
    stack.sandbox_gone(&session).await.unwrap();

    let again = api.verb(&session, "cancel").await.unwrap();
    assert_eq!(again.status, 200, "cancel may be repeated");
    let refused = api.begin_turn(&session, "more").await.unwrap();
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (409, "not_steerable")
    );
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn archived_sessions_take_no_turn_and_deleted_ones_are_gone() {
    let stack = Stack::start(StackOptions {
        idle_grace: Some(Duration::from_secs(1)),
        ..StackOptions::default()
    })
    .await
    .unwrap();
    let (api, admin) = (stack.operator(), stack.admin());
    let session = create(&stack, "hang parts=4").await;
    talks(&stack, &session).await;
    let refused = admin.delete(&session).await.unwrap();
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (409, "not_deletable")
    );
    api.verb(&session, "turns/1/stop").await.unwrap();
    settled(&api, &session, 1).await.unwrap();

    assert_eq!(api.verb(&session, "archive").await.unwrap().status, 200);
    let list =
        |archived: &str| format!("/v1/agent-sessions?workspaceId={WORKSPACE}&archived={archived}");
    let count = async |archived: &str| {
        let page = api
            .call(http::Method::GET, &list(archived), None)
            .await
            .unwrap();
        page.json()["items"].as_array().map(Vec::len)
    };
    assert_eq!(
        (
            count("false").await,
            count("true").await,
            count("all").await
        ),
        (Some(0), Some(1), Some(1))
    );
    let refused = api.begin_turn(&session, "more").await.unwrap();
    assert_eq!(
        (refused.status.as_u16(), refused.code().as_str()),
        (409, "archived")
    );
    assert_eq!(api.verb(&session, "unarchive").await.unwrap().status, 200);
    assert_eq!(count("false").await, Some(1));

    stack.sandbox_gone(&session).await.unwrap();
    assert_eq!(
        api.delete(&session).await.unwrap().status,
        403,
        "only an administrator deletes"
    );
    let deleted = admin.delete(&session).await.unwrap();
    assert_eq!(deleted.status, 204, "{}", deleted.json());
    let gone = api
        .call(
            http::Method::GET,
            &format!("/v1/agent-sessions/{session}"),
            None,
        )
        .await
        .unwrap();
    assert_eq!(
        (gone.status.as_u16(), gone.code().as_str()),
        (404, "not_found")
    );
    let left = stack
        .sql(&format!(
            "SELECT count(*) FROM transcript_parts WHERE session_id = '{session}'"
        ))
        .unwrap();
    assert_eq!(left.trim(), "0", "deletion cascades");
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_crashes_leaves_a_whole_transcript_and_a_steerable_session() {
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let api = stack.operator();
    let session = create(&stack, "crash parts=10").await;
    let turn = settled(&api, &session, 1).await.unwrap();
    assert_eq!(
        (turn.verdict.as_str(), turn.ended_by.as_deref()),
        ("complete", Some("agent")),
        "{turn:?}"
    );
    reaches(&api, &session, Phase::Failed).await.unwrap();
    let parts = stored(&api, &session).await.unwrap();
    let spoken = parts
        .iter()
        .filter(|(_, p)| String::from_utf8_lossy(p).contains("Line "))
        .count();
    assert_eq!(spoken, 5, "what was said before the crash");
    let begun = api.begin_turn(&session, "again parts=3").await.unwrap();
    assert_eq!(begun.status, 201, "{}", begun.json());
    assert_eq!(
        settled(&api, &session, 2).await.unwrap().verdict,
        "complete"
    );
    reaches(&api, &session, Phase::Completed).await.unwrap();
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plain_command_becomes_parts() {
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let api = stack.operator();
    let script = "echo one; echo two >&2; printf 'no end'; exit 3";
    let new = NewSession::new(WORKSPACE, "command", "run it").args(&["/bin/sh", "-c", script]);
    let session = api.create(&new).await.unwrap();
    let turn = settled(&api, &session, 1).await.unwrap();
    assert_eq!(turn.verdict, "complete", "{turn:?}");
    reaches(&api, &session, Phase::Failed).await.unwrap();
    let parts = stored(&api, &session).await.unwrap();
    let text = parts
        .iter()
        .map(|(_, p)| String::from_utf8_lossy(p).into_owned())
        .collect::<String>();
    for word in ["one", "two", "no end"] {
        assert!(text.contains(word), "{word} is missing in {text}");
    }
    stack.stop().await.unwrap();
}
