//! What the api is asked that it must not do.

use bex_proto::SessionId;
use bex_tests::client::{Answer, ApiClient, NewSession};
use bex_tests::scenario::settled;
use bex_tests::stack::{OTHER_WORKSPACE, WORKSPACE};
use bex_tests::{Stack, StackOptions};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

const SESSIONS: &str = "/v1/agent-sessions";

async fn create(api: &ApiClient, body: &Value) -> Answer {
    api.call(Method::POST, SESSIONS, Some(body)).await.unwrap()
}

fn problem(answer: &Answer) -> (u16, String) {
    assert_eq!(
        answer.headers["content-type"], "application/problem+json",
        "{answer:?}"
    );
    (answer.status.as_u16(), answer.code())
}

fn good() -> Value {
    NewSession::new(WORKSPACE, "demo", "say little parts=2").body
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_not_as_agreed_are_refused() {
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let api = stack.operator();
    let with = |pointer: &str, value: Value| {
        let mut body = good();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        body.pointer_mut(parent).unwrap()[key] = value;
        body
    };
    let cases = [
        (with("/colour", json!("red")), 400, "unknown_field"),
        (with("/agent/colour", json!("red")), 400, "unknown_field"),
        (
            with("/agent/profile", json!("nobody")),
            400,
            "profile_unknown",
        ),
        (with("/prompt", json!("")), 400, "invalid_request"),
        (
            with(
                "/prompt",
                json!("x".repeat(bex_proto::limits::PROMPT_BYTES + 1)),
            ),
            400,
            "invalid_request",
        ),
        (with("/kind", json!("autonomous")), 400, "invalid_request"),
        (with("/workflowId", json!("wf-1")), 400, "invalid_request"),
        (with("/agent/args", json!(["x"])), 400, "invalid_request"),
        (
            with(
                "/agent/env",
                json!([{"name": "TOKEN", "secretRef": "ghp_abcdefghijklmnopqrstuvwxyz0123456789"}]),
            ),
            400,
            "secret_literal",
        ),
    ];
    for (body, status, code) in cases {
        let answer = create(&api, &body).await;
        assert_eq!(problem(&answer), (status, code.to_owned()), "{body:.300}");
    }
    let raw = async |text: Vec<u8>| {
        api.call_raw(Method::POST, SESSIONS, Some(Bytes::from(text)), &[])
            .await
            .unwrap()
    };
    assert_eq!(
        problem(&raw(b"{".to_vec()).await),
        (400, "invalid_json".into())
    );
    let mut large = good().to_string().into_bytes();
    large.resize(bex_proto::limits::API_BODY + 1, b' ');
    assert_eq!(problem(&raw(large).await), (413, "body_too_large".into()));
    let listed = api
        .call(
            Method::GET,
            &format!("{SESSIONS}?workspaceId={WORKSPACE}&x=1"),
            None,
        )
        .await
        .unwrap();
    assert_eq!(problem(&listed), (400, "unknown_field".into()));
    let listed = api
        .call(
            Method::GET,
            &format!("{SESSIONS}?workspaceId={WORKSPACE}"),
            None,
        )
        .await
        .unwrap();
    assert_eq!(
        listed.json()["items"],
        json!([]),
        "none of these made a session"
    );
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_and_workspaces_are_kept_apart() {
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let session = stack
        .operator()
        .create(&NewSession { body: good() })
        .await
        .unwrap();
    let path = format!("{SESSIONS}/{session}");

    let anonymous = ApiClient::new(stack.addresses.api, "no such token", Default::default());
    assert_eq!(
        problem(&create(&anonymous, &good()).await),
        (401, "unauthenticated".into())
    );
    assert_eq!(
        problem(&create(&stack.viewer(), &good()).await),
        (403, "forbidden".into())
    );
    assert_eq!(
        stack
            .viewer()
            .call(Method::GET, &path, None)
            .await
            .unwrap()
            .status,
        200
    );
    stack.viewer().read_ticket(&session).await.unwrap();

    // another workspace's session answers exactly as one that does not exist
    let stranger = stack.stranger();
    let nobody = SessionId::random();
    let verbs = [
        (Method::GET, ""),
        (Method::GET, "/turns"),
        (Method::GET, "/transcript"),
        (Method::POST, "/cancel"),
    ];
    for (method, verb) in verbs {
        let theirs = stranger
            .call(method.clone(), &format!("{path}{verb}"), None)
            .await
            .unwrap();
        let none = stranger
            .call(method, &format!("{SESSIONS}/{nobody}{verb}"), None)
            .await
            .unwrap();
        assert_eq!(problem(&theirs), (404, "not_found".into()), "{verb}");
        assert_eq!(
            (none.status, none.json()),
            (theirs.status, theirs.json()),
            "{verb}"
        );
    }
    let foreign = NewSession::new(OTHER_WORKSPACE, "demo", "x").body;
    assert_eq!(problem(&create(&stack.operator(), &foreign).await).0, 404);
    settled(&stack.operator(), &session, 1).await.unwrap();
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_create_is_one_session() {
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let api = stack.operator();
    let send = async |body: Value| {
        let body = Bytes::from(body.to_string());
        api.call_raw(
            Method::POST,
            SESSIONS,
            Some(body),
            &[("idempotency-key", "once")],
        )
        .await
        .unwrap()
    };
    let (first, second) = (send(good()).await, send(good()).await);
    assert_eq!((first.status.as_u16(), second.status.as_u16()), (201, 201));
    assert_eq!(first.json()["id"], second.json()["id"]);
    let location = first.headers["location"].to_str().unwrap();
    assert!(
        location.ends_with(first.json()["id"].as_str().unwrap()),
        "{location}"
    );
    let other = send(NewSession::new(WORKSPACE, "demo", "another").body).await;
    assert_eq!(problem(&other), (409, "idempotency_conflict".into()));
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_has_a_limit_of_live_sessions() {
    let options = StackOptions::default().api("BEX_LIVE_LIMIT", "1");
    let stack = Stack::start(options).await.unwrap();
    let api = stack.operator();
    let session = api
        .create(&NewSession::new(WORKSPACE, "demo", "hang parts=2"))
        .await
        .unwrap();
    let refused = create(&api, &good()).await;
    assert_eq!(problem(&refused), (409, "live_limit".into()));
    assert_eq!(
        (
            refused.json()["live"].as_u64(),
            refused.json()["limit"].as_u64()
        ),
        (Some(1), Some(1))
    );
    api.verb(&session, "cancel").await.unwrap();
    settled(&api, &session, 1).await.unwrap();
    stack.stop().await.unwrap();
}
