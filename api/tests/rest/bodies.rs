//! What is refused before anything is stored.

use bex_proto::limits;
use bytes::Bytes;
use http_body_util::Full;
use serde_json::{Value, json};

use crate::support::*;

const SESSIONS: &str = "/v1/agent-sessions";

fn with(change: impl FnOnce(&mut Value)) -> Value {
    let mut body = create_body();
    change(&mut body);
    body
}

#[tokio::test]
async fn every_bad_create_has_its_code_and_leaves_nothing() {
    let world = World::new().await;
    let env = |entry: Value| with(|b| b["agent"]["env"] = json!([entry]));
    let cases: Vec<(Value, &str, &str)> = vec![
        (
            with(|b| b["surprise"] = json!(1)),
            "unknown_field",
            "surprise",
        ),
        (
            with(|b| b["agent"]["image"] = json!("x")),
            "unknown_field",
            "image",
        ),
        (
            env(json!({"name": "A", "secretRef": "r", "extra": 1})),
            "unknown_field",
            "extra",
        ),
        (
            with(|b| b["prompt"] = json!("")),
            "invalid_request",
            "prompt",
        ),
        (
            with(|b| b["prompt"] = json!(" \n")),
            "invalid_request",
            "prompt",
        ),
        (
            with(|b| b["prompt"] = json!("a\u{0}b")),
            "invalid_request",
            "NUL",
        ),
        (
            with(|b| b["prompt"] = json!("x".repeat(limits::PROMPT_BYTES + 1))),
            "invalid_request",
            "100000",
        ),
        (
            with(|b| b["prompt"] = json!(7)),
            "invalid_request",
            "expected a string",
        ),
        (
            with(|b| b["kind"] = json!("robot")),
            "invalid_request",
            "robot",
        ),
        (
            with(|b| b["kind"] = json!("autonomous")),
            "invalid_request",
            "workflowId",
        ),
        (
            with(|b| b["workflowId"] = json!("w")),
            "invalid_request",
            "autonomous",
        ),
        (
            with(|b| b["workspaceId"] = json!("Demo!")),
            "invalid_request",
            "workspaceId",
        ),
        (with(|b| b["title"] = json!("")), "invalid_request", "title"),
        (
            with(|b| b["repo"] = json!("x".repeat(limits::REPO_BYTES + 1))),
            "invalid_request",
            "repo",
        ),
        (
            with(|b| b["agent"]["profile"] = json!("root-shell")),
            "profile_unknown",
            "",
        ),
        (
            with(|b| b["agent"]["args"] = json!(["x"])),
            "invalid_request",
            "takes no args",
        ),
        (
            with(|b| b["agent"] = json!({"profile": "command"})),
            "invalid_request",
            "program",
        ),
        (
            env(json!({"name": "A", "value": "plain"})),
            "secret_literal",
            "env[0]",
        ),
        (
            env(json!({"name": "A", "secretRef": "r", "value": "plain"})),
            "secret_literal",
            "env[0]",
        ),
        (
            env(json!({"name": "A", "secretRef": "ghp_16C7e42F292c6912E7710c838347Ae178B4a"})),
            "secret_literal",
            "",
        ),
        (
            env(json!({"name": "A", "secretRef": "p@ss word"})),
            "invalid_request",
            "secretRef",
        ),
        (env(json!({"name": "A"})), "invalid_request", "secretRef"),
        (
            env(json!({"name": "1A", "secretRef": "r"})),
            "invalid_request",
            "name",
        ),
        (
            with(|b| {
                b["agent"]["env"] =
                    json!([{"name": "A", "secretRef": "r"}, {"name": "A", "secretRef": "s"}])
            }),
            "invalid_request",
            "twice",
        ),
    ];
    for (body, code, mention) in cases {
        let problem = world.post(OPERATOR, SESSIONS, &body).await.refused(code);
        let detail = problem["detail"].as_str().unwrap_or_default();
        assert!(
            detail.contains(mention),
            "{code}: {detail} should mention {mention}"
        );
        assert!(!problem.to_string().contains("ghp_"), "{problem}");
    }
    let unknown = world
        .post(OPERATOR, SESSIONS, &with(|b| b["surprise"] = json!(1)))
        .await;
    assert_eq!(unknown.json()["field"], "surprise");
    for raw in ["{", "not json", "{\"prompt\":\"\u{1}\"}"] {
        let request = world
            .request(OPERATOR, "POST", SESSIONS)
            .body(Full::new(Bytes::from(raw)))
            .unwrap();
        world.send(request).await.refused("invalid_json");
    }
    let request = world
        .request(OPERATOR, "POST", SESSIONS)
        .body(Full::new(Bytes::from_static(b"{\"prompt\":\"\xff\"}")));
    world.send(request.unwrap()).await.refused("invalid_json");
    assert_eq!(world.sql("SELECT count(*) FROM sessions"), "0");
}

#[tokio::test]
async fn a_body_over_its_limit_is_refused_and_the_largest_is_not() {
    let world = World::new().await;
    let padded = |bytes: usize| {
        let text = create_body().to_string();
        let pad = " ".repeat(bytes - text.len());
        Bytes::from(format!("{text}{pad}"))
    };
    let send = async |body: Bytes| {
        let request = world
            .request(OPERATOR, "POST", SESSIONS)
            .body(Full::new(body))
            .unwrap();
        world.send(request).await
    };
    send(padded(limits::API_BODY)).await.ok(201);
    let problem = send(padded(limits::API_BODY + 1))
        .await
        .refused("body_too_large");
    assert_eq!(problem["limit"], limits::API_BODY);
    send(padded(3 * limits::API_BODY))
        .await
        .refused("body_too_large");
    assert_eq!(world.sql("SELECT count(*) FROM sessions"), "1");
}

#[tokio::test]
async fn queries_are_as_strict_as_bodies() {
    let world = World::new().await;
    for (query, code) in [
        ("?limit=0", "invalid_request"),
        ("?limit=201", "invalid_request"),
        ("?limit=1&limit=2", "invalid_request"),
        ("?archived=yes", "invalid_request"),
        ("?phase=happy", "invalid_request"),
        ("?createdBefore=yesterday", "invalid_request"),
        ("?workspaceId=Demo!", "invalid_request"),
        ("?repo=", "invalid_request"),
        ("?repo=a%00b", "invalid_request"),
        ("?cursor=zzz", "invalid_cursor"),
        ("?page=2", "unknown_field"),
    ] {
        world
            .get(VIEWER, &format!("{SESSIONS}{query}"))
            .await
            .refused(code);
    }
    world
        .get(EVERYWHERE, SESSIONS)
        .await
        .refused("invalid_request");
    world
        .get(EVERYWHERE, &format!("{SESSIONS}?workspaceId=demo"))
        .await
        .ok(200);
}
