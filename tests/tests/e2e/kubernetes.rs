//! Whole sessions whose sandboxes are pods: the real binaries, the real driver, a double of a cluster.

use std::time::Duration;

use bex_proto::SessionId;
use bex_proto::session::Phase;
use bex_testk8s::Image;
use bex_tests::client::{Ending, NewSession, Viewer};
use bex_tests::cluster::{API, GATEWAY, IMAGE, namespace};
use bex_tests::scenario::{STEP, reaches, saw_everything, settled, stored};
use bex_tests::stack::{OTHER_WORKSPACE, SandboxKind, WORKSPACE};
use bex_tests::{Stack, StackOptions, eventually};
use serde_json::{Value, json};

use super::secrets::printed;

/// Nothing happens by a tick within a test.
const NO_TICK: Duration = Duration::from_secs(3600);

fn options() -> StackOptions {
    StackOptions {
        kind: Some(SandboxKind::Kubernetes),
        ..StackOptions::default()
    }
}

async fn create(stack: &Stack, prompt: &str) -> SessionId {
    let new = NewSession::new(WORKSPACE, "demo", prompt);
    stack.operator().create(&new).await.unwrap()
}

async fn session_of(stack: &Stack, session: &SessionId) -> Value {
    let path = format!("/v1/agent-sessions/{session}");
    let answer = stack.admin().call(http::Method::GET, &path, None).await;
    answer.unwrap().json()
}

async fn watched(stack: &Stack, session: &SessionId) -> Viewer {
    let mut viewer = stack.watch(session).await.unwrap();
    viewer.until(|e| e.kind() == "text-delta").await.unwrap();
    viewer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_lives_in_a_pod_and_leaves_nothing() {
    let stack = Stack::start(StackOptions {
        idle_grace: Some(Duration::from_secs(20)),
        ..options()
    })
    .await
    .unwrap();
    let cluster = stack.cluster().unwrap();
    let api = stack.operator();
    let session = create(&stack, "first parts=40 gate=go").await;
    // live, through the pod's address, while the turn is being spoken
    let mut viewer = watched(&stack, &session).await;
    let pod = cluster.pod(&session).unwrap();
    assert_eq!(pod, format!("{session}-g1"));
    stack.open_gate(&session, "go").unwrap();
    assert_eq!(viewer.to_end().await.unwrap(), Ending::Done);
    // read by exec, proved, settled
    let turn = settled(&api, &session, 1).await.unwrap();
    assert_eq!(
        (turn.verdict.as_str(), turn.ended_by.as_deref()),
        ("complete", Some("agent")),
        "{turn:?}"
    );
    reaches(&api, &session, Phase::Completed).await.unwrap();
    saw_everything(&stored(&api, &session).await.unwrap(), &viewer.parts()).unwrap();

    // the next turn goes to the same pod
    let begun = api.begin_turn(&session, "second parts=10").await.unwrap();
    assert_eq!(begun.status, 201, "{}", begun.json());
    let turn = settled(&api, &session, 2).await.unwrap();
    assert_eq!(
        (turn.verdict.as_str(), &turn.rest["deliveryMode"]),
        ("complete", &json!("live")),
        "{turn:?}"
    );
    assert_eq!(cluster.pod(&session).unwrap(), pod);

    // a pod with less than a day to live takes no turn: a fresh one does, and the old one is removed
    let edited = cluster.double.edit_pod(&namespace(), &pod, |pod| {
        pod["spec"]["activeDeadlineSeconds"] = json!(3600);
    });
    assert!(edited);
    let begun = api.begin_turn(&session, "third parts=10").await.unwrap();
    assert_eq!(begun.status, 201, "{}", begun.json());
    let turn = settled(&api, &session, 3).await.unwrap();
    assert_eq!(
        (turn.verdict.as_str(), &turn.rest["deliveryMode"]),
        ("complete", &json!("fresh")),
        "{turn:?}"
    );
    let mut replay = stack.watch(&session).await.unwrap();
    assert_eq!(replay.to_end().await.unwrap(), Ending::Done);
    saw_everything(&stored(&api, &session).await.unwrap(), &replay.parts()).unwrap();

    // its grace over, nothing is left
    stack.sandbox_gone(&session).await.unwrap();
    let account = |of: (&str, &str)| format!("system:serviceaccount:{}:{}", of.0, of.1);
    let requests = cluster.double.requests();
    let of = |account: &str| {
        let ours = requests.iter().filter(|r| r.user == account);
        ours.map(|r| (&*r.verb, &*r.resource))
            .collect::<std::collections::BTreeSet<_>>()
    };
    let (by_api, by_gateway) = (of(&account(API)), of(&account(GATEWAY)));
    assert!(
        by_api.iter().all(|(_, resource)| *resource == "pods"),
        "the api never execs: {by_api:?}"
    );
    assert!(by_api.contains(&("delete", "pods")) && by_api.contains(&("create", "pods")));
    assert_eq!(
        by_gateway.into_iter().collect::<Vec<_>>(),
        [("get", "pods"), ("get", "pods/exec")]
    );
    assert!(
        requests.iter().all(|r| r.status != 403),
        "nobody asks for more than the rules give"
    );
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_nobody_asked_for_wakes_a_last_harvest() {
    let stack = Stack::start(StackOptions {
        tick: NO_TICK,
        ..options()
    })
    .await
    .unwrap();
    let cluster = stack.cluster().unwrap();
    let api = stack.operator();
    // nobody watches, so that nobody else wakes anybody
    let session = create(&stack, "speak parts=40 gate=never").await;
    stack.said(&session, "text-delta").await.unwrap();
    let pod = cluster.pod(&session).unwrap();
    // its driver ends the turn and can be read for as long as the grace lasts
    assert!(cluster.double.delete_pod(&namespace(), &pod, Some(60)));
    let turn = settled(&api, &session, 1).await.unwrap();
    assert_eq!(turn.verdict, "complete", "its last line was read: {turn:?}");
    reaches(&api, &session, Phase::Failed).await.unwrap();
    let parts = stored(&api, &session).await.unwrap();
    let mut replay = stack.watch(&session).await.unwrap();
    assert_eq!(replay.to_end().await.unwrap(), Ending::Done);
    saw_everything(&parts, &replay.parts()).unwrap();

    // an idle one has said all it had to say: it is cleared up, and the next turn gets a fresh one
    let session = create(&stack, "first parts=10").await;
    let mut viewer = stack.watch(&session).await.unwrap();
    assert_eq!(viewer.to_end().await.unwrap(), Ending::Done);
    let turn = settled(&api, &session, 1).await.unwrap();
    assert_eq!(turn.verdict, "complete", "{turn:?}");
    reaches(&api, &session, Phase::Completed).await.unwrap();
    let pod = cluster.pod(&session).unwrap();
    assert!(cluster.double.delete_pod(&namespace(), &pod, Some(0)));
    let row = format!("SELECT state FROM sandboxes WHERE session_id = '{session}'");
    eventually("the row is gone too", STEP, async || {
        (stack.sql(&row).ok()?.trim() == "gone").then_some(())
    })
    .await
    .unwrap();
    let begun = api.begin_turn(&session, "second parts=10").await.unwrap();
    assert_eq!(begun.status, 201, "{}", begun.json());
    let mut viewer = stack.watch(&session).await.unwrap();
    assert_eq!(viewer.to_end().await.unwrap(), Ending::Done);
    let turn = settled(&api, &session, 2).await.unwrap();
    assert_eq!(
        (turn.verdict.as_str(), &turn.rest["deliveryMode"]),
        ("complete", &json!("fresh")),
        "{turn:?}"
    );

    // one that goes without grace is lost, and that too is told at once
    let session = create(&stack, "speak parts=40 gate=never").await;
    stack.said(&session, "text-delta").await.unwrap();
    let pod = cluster.pod(&session).unwrap();
    assert!(cluster.double.delete_pod(&namespace(), &pod, Some(0)));
    let turn = settled(&api, &session, 1).await.unwrap();
    assert_eq!(
        (turn.verdict.as_str(), turn.reason.as_deref()),
        ("truncated", Some("sandbox_lost")),
        "{turn:?}"
    );
    cluster.gone(&session).await.unwrap();
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn why_no_pod_was_made_is_told_in_words() {
    let stack = Stack::start(options()).await.unwrap();
    let cluster = stack.cluster().unwrap();
    cluster
        .double
        .image(IMAGE, Image::missing("ErrImageNeverPull"));
    let api = stack.operator();
    let image = create(&stack, "hello").await;
    reaches(&api, &image, Phase::Failed).await.unwrap();
    cluster.gone(&image).await.unwrap();
    cluster.double.namespace_with_quota(&namespace(), 0);
    let quota = create(&stack, "hello").await;
    reaches(&api, &quota, Phase::Failed).await.unwrap();
    let other = NewSession::new(OTHER_WORKSPACE, "demo", "hello");
    let nowhere = stack.stranger().create(&other).await.unwrap();
    reaches(&stack.admin(), &nowhere, Phase::Failed)
        .await
        .unwrap();
    for (session, reason, sentence, retryable) in [
        (
            &image,
            "image_unavailable",
            "The sandbox's image cannot be pulled.",
            false,
        ),
        (
            &quota,
            "quota_exceeded",
            "This workspace's quota of sandboxes in the cluster is used up.",
            true,
        ),
        (
            &nowhere,
            "namespace_missing",
            "The cluster has no namespace for this workspace's sandboxes.",
            false,
        ),
    ] {
        let shown = session_of(&stack, session).await;
        assert_eq!(
            (
                &shown["failureReason"],
                &shown["failureMessage"],
                &shown["failureRetryable"]
            ),
            (&json!(reason), &json!(sentence), &json!(retryable)),
            "{shown}"
        );
    }
    let ended = settled(&api, &image, 1).await.unwrap();
    assert_eq!(ended.reason.as_deref(), Some("provisioning_failed"));
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_comes_from_the_cluster_and_is_shown_nowhere() {
    const SECRET: &str = "correct-horse-battery-staple-0123456789";
    let stack = Stack::start(StackOptions {
        secrets: [("git".to_owned(), SECRET.to_owned())].into(),
        ..options()
    })
    .await
    .unwrap();
    // the agent has it under its own name, and nothing of the driver's environment
    let script =
        r#"test -n "$TOKEN" || exit 9; env | grep -c BEX_SECRET_; echo "$TOKEN"; echo safe"#;
    let (session, text) = printed(&stack, "git", script).await;
    assert!(!text.contains(SECRET), "{text}");
    let pods = json!(stack.cluster().unwrap().pods(&session)).to_string();
    assert!(pods.contains("BEX_SECRET_TOKEN") && !pods.contains(SECRET));
    stack.stop().await.unwrap();
}
