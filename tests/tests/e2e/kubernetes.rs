//! Whole sessions whose sandboxes are pods: the real binaries, the real driver, a double of a cluster.

use std::time::Duration;

use bex_proto::SessionId;
use bex_proto::session::Phase;
use bex_testk8s::Image;
use bex_tests::client::{Ending, NewSession, Viewer};
use bex_tests::cluster::{API, GATEWAY, IMAGE, PodCluster, namespace};
use bex_tests::scenario::{reaches, saw_everything, settled, stored};
use bex_tests::stack::{OTHER_WORKSPACE, WORKSPACE};
use bex_tests::{Stack, StackOptions};
use serde_json::{Value, json};

/// Nothing happens by a tick within a test.
const NO_TICK: Duration = Duration::from_secs(3600);

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
    let cluster = PodCluster::start().await.unwrap();
    let options = StackOptions {
        idle_grace: Some(Duration::from_secs(20)),
        ..StackOptions::default()
    };
    let stack = Stack::start(cluster.options(IMAGE, options).unwrap())
        .await
        .unwrap();
    let api = stack.operator();
    let session = create(&stack, "first parts=40 gate=go").await;
    // live, through the pod's address, while the turn is being spoken
    let mut viewer = watched(&stack, &session).await;
    let pod = cluster.pod(&session).unwrap();
    assert_eq!(pod, format!("{session}-g1"));
    cluster.open_gate(&session, "go").unwrap();
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
    cluster.gone(&session).await.unwrap();
    stack.stop().await.unwrap();
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
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_nobody_asked_for_wakes_a_last_harvest() {
    let cluster = PodCluster::start().await.unwrap();
    let options = StackOptions {
        tick: NO_TICK,
        ..StackOptions::default()
    };
    let stack = Stack::start(cluster.options(IMAGE, options).unwrap())
        .await
        .unwrap();
    let api = stack.operator();
    // nobody watches, so that nobody else wakes anybody
    let session = create(&stack, "speak parts=40 gate=never").await;
    cluster.said(&session, "text-delta").await.unwrap();
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

    // one that goes without grace is lost, and that too is told at once
    let session = create(&stack, "speak parts=40 gate=never").await;
    cluster.said(&session, "text-delta").await.unwrap();
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
    let cluster = PodCluster::start().await.unwrap();
    cluster
        .double
        .image("never:1", Image::missing("ErrImageNeverPull"));
    let options = cluster.options("never:1", StackOptions::default()).unwrap();
    let stack = Stack::start(options).await.unwrap();
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
    let cluster = PodCluster::start().await.unwrap();
    let secret = json!({"kind": "Secret", "metadata": {"name": "git", "namespace": namespace()},
        "stringData": {"token": SECRET}});
    assert!(cluster.double.apply(&secret));
    let stack = Stack::start(cluster.options(IMAGE, StackOptions::default()).unwrap())
        .await
        .unwrap();
    let api = stack.operator();
    // the agent has it under its own name, and nothing of the driver's environment
    let script =
        r#"test -n "$TOKEN" || exit 9; env | grep -c BEX_SECRET_; echo "$TOKEN"; echo safe"#;
    let mut new =
        NewSession::new(WORKSPACE, "command", "print it").args(&["/bin/sh", "-c", script]);
    new.body["agent"]["env"] = json!([{"name": "TOKEN", "secretRef": "git/token"}]);
    let session = api.create(&new).await.unwrap();
    let turn = settled(&api, &session, 1).await.unwrap();
    assert_eq!(
        (turn.verdict.as_str(), turn.ended_by.as_deref()),
        ("complete", Some("agent")),
        "{turn:?}"
    );
    let parts = stored(&api, &session).await.unwrap();
    let text: String = parts
        .iter()
        .map(|(_, p)| String::from_utf8_lossy(p).into_owned())
        .collect();
    assert!(text.contains("safe"), "the command ran: {text}");
    assert!(!text.contains(SECRET), "{text}");
    let pods = json!(cluster.pods(&session)).to_string();
    assert!(pods.contains("BEX_SECRET_TOKEN") && !pods.contains(SECRET));
    stack.stop().await.unwrap();
}
