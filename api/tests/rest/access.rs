//! Who may do what, and what others can tell.

use bex_api::http::ROUTES;
use bex_proto::SessionId;
use serde_json::json;

use crate::support::*;

fn filled(path: &str, id: &str) -> String {
    path.replace("{id}", id)
        .replace("{turn}", "1")
        .replace("{nodeId}", "n")
        .replace("{configId}", "c")
        .replace("{version}", "1")
        .replace("{workspaceId}", "demo")
}

/// The role each route needs.
const NEEDS: &[(&str, &str, &str)] = &[
    ("post", "/v1/agent-sessions", OPERATOR),
    ("get", "/v1/agent-sessions", VIEWER),
    ("get", "/v1/agent-sessions/{id}", VIEWER),
    ("delete", "/v1/agent-sessions/{id}", ADMIN),
    ("post", "/v1/agent-sessions/{id}/turns", OPERATOR),
    ("get", "/v1/agent-sessions/{id}/turns", VIEWER),
    (
        "post",
        "/v1/agent-sessions/{id}/turns/{turn}/stop",
        OPERATOR,
    ),
    ("post", "/v1/agent-sessions/{id}/cancel", OPERATOR),
    ("post", "/v1/agent-sessions/{id}/archive", OPERATOR),
    ("post", "/v1/agent-sessions/{id}/unarchive", OPERATOR),
    ("post", "/v1/agent-sessions/{id}/attach-ticket", VIEWER),
    ("get", "/v1/agent-sessions/{id}/transcript", VIEWER),
    ("post", "/v1/agent-sessions/{id}/exec", OPERATOR),
    ("get", "/v1/agent-sessions/{id}/priming", VIEWER),
    ("get", "/v1/agent-sessions/{id}/export", VIEWER),
    ("get", "/v1/agent-sessions/{id}/proof", VIEWER),
    ("post", "/v1/agent-sessions/{id}/legal-hold", ADMIN),
    ("delete", "/v1/agent-sessions/{id}/legal-hold", ADMIN),
    ("get", "/v1/workspaces/{workspaceId}/retention", VIEWER),
    ("post", "/v1/workspaces/{workspaceId}/retention", ADMIN),
    ("delete", "/v1/workspaces/{workspaceId}", ADMIN),
    ("post", "/v1/revocations", ADMIN),
    ("get", "/v1/agent-sessions/{id}/messages", VIEWER),
    ("post", "/v1/machines", ADMIN),
    ("get", "/v1/machines", VIEWER),
    ("get", "/v1/machines/{id}", VIEWER),
    ("post", "/v1/machines/{id}/rotate", ADMIN),
    ("post", "/v1/machines/{id}/revoke", ADMIN),
    ("post", "/v1/remote-sessions", OPERATOR),
    ("get", "/v1/remote-sessions", VIEWER),
    ("get", "/v1/remote-sessions/{id}", VIEWER),
    ("delete", "/v1/remote-sessions/{id}", ADMIN),
    ("post", "/v1/remote-sessions/{id}/archive", OPERATOR),
    ("post", "/v1/remote-sessions/{id}/unarchive", OPERATOR),
    ("post", "/v1/remote-sessions/{id}/legal-hold", ADMIN),
    ("delete", "/v1/remote-sessions/{id}/legal-hold", ADMIN),
    ("post", "/v1/remote-sessions/{id}/rebuild", ADMIN),
    ("post", "/v1/remote-sessions/{id}/attach-ticket", VIEWER),
    ("post", "/v1/remote-sessions/{id}/chat", OPERATOR),
    ("post", "/v1/remote-sessions/{id}/abort", OPERATOR),
    ("post", "/v1/remote-sessions/{id}/stop", OPERATOR),
    ("post", "/v1/remote-sessions/{id}/pause", OPERATOR),
    ("post", "/v1/remote-sessions/{id}/resume", OPERATOR),
    ("post", "/v1/remote-sessions/{id}/permission", OPERATOR),
    ("get", "/v1/remote-sessions/{id}/output", VIEWER),
    ("get", "/v1/remote-sessions/{id}/messages", VIEWER),
    ("get", "/v1/remote-sessions/{id}/turns", VIEWER),
    ("put", "/v1/executions/{id}", OPERATOR),
    ("get", "/v1/executions", VIEWER),
    ("get", "/v1/executions/{id}", VIEWER),
    ("delete", "/v1/executions/{id}", ADMIN),
    ("put", "/v1/executions/{id}/nodes/{nodeId}", OPERATOR),
    ("get", "/v1/executions/{id}/nodes", VIEWER),
    ("post", "/v1/findings", OPERATOR),
    ("get", "/v1/findings", VIEWER),
    ("post", "/v1/usage", OPERATOR),
    ("get", "/v1/usage", VIEWER),
    (
        "put",
        "/v1/workflows/{configId}/versions/{version}",
        OPERATOR,
    ),
    ("get", "/v1/workflows/{configId}/versions/{version}", VIEWER),
    ("get", "/v1/workflows/{configId}/versions", VIEWER),
    (
        "put",
        "/v1/exec-specs/{configId}/versions/{version}",
        OPERATOR,
    ),
    (
        "get",
        "/v1/exec-specs/{configId}/versions/{version}",
        VIEWER,
    ),
    ("get", "/v1/exec-specs/{configId}/versions", VIEWER),
    (
        "put",
        "/v1/model-configs/{configId}/versions/{version}",
        OPERATOR,
    ),
    (
        "get",
        "/v1/model-configs/{configId}/versions/{version}",
        VIEWER,
    ),
    ("get", "/v1/model-configs/{configId}/versions", VIEWER),
    (
        "put",
        "/v1/agent-configs/{configId}/versions/{version}",
        OPERATOR,
    ),
    (
        "get",
        "/v1/agent-configs/{configId}/versions/{version}",
        VIEWER,
    ),
    ("get", "/v1/agent-configs/{configId}/versions", VIEWER),
];

/// What machines may ask, with their own tokens and no other.
const MACHINES: &[(&str, &str)] = &[
    ("post", "/v1/machine/rotate"),
    ("post", "/v1/machine/heartbeat"),
    ("get", "/v1/machine/commands"),
    ("post", "/v1/machine/commands/{id}"),
    ("post", "/v1/remote-sessions/{id}/output"),
    ("post", "/v1/remote-sessions/{id}/import"),
    ("post", "/v1/remote-sessions/{id}/status"),
    ("post", "/v1/remote-sessions/{id}/usage"),
];

#[tokio::test]
async fn every_route_needs_its_role_and_no_more() {
    let world = World::new().await;
    let table: Vec<_> = NEEDS
        .iter()
        .map(|(method, path, _)| (*method, *path))
        .collect();
    let routes: Vec<_> = ROUTES
        .iter()
        .copied()
        .filter(|route| route.1.starts_with("/v1/") && !MACHINES.contains(route))
        .collect();
    assert_eq!(table, routes, "every route stands in the table");
    let nothing = SessionId::random();
    for (method, path) in MACHINES {
        for token in ["", VIEWER, OPERATOR, ADMIN] {
            let path = filled(path, nothing.as_str());
            let answer = world.call(token, method, &path).await;
            answer.refused("unauthenticated");
        }
    }
    for (method, path, role) in NEEDS {
        let path = filled(path, nothing.as_str());
        for bad in ["", "wrong-token"] {
            let answer = world.call(bad, method, &path).await;
            assert_eq!(answer.header("www-authenticate"), "Bearer");
            answer.refused("unauthenticated");
        }
        let order = [VIEWER, OPERATOR, ADMIN];
        let needed = order.iter().position(|r| r == role).unwrap();
        for (i, token) in order.iter().enumerate() {
            let answer = world.call(token, method, &path).await;
            // without a body the allowed ones fail later, each in its own way
            assert_eq!(
                answer.json()["code"] == "forbidden",
                i < needed,
                "{method} {path} {token}"
            );
        }
    }
}

#[tokio::test]
async fn anothers_session_answers_as_none_byte_for_byte() {
    let world = crate::replay::world(crate::replay::Place::here()).await;
    let theirs = world.finished(bex_store::settle::SandboxAfter::Idle).await;
    let none = SessionId::random();
    let mut asked = 0;
    let others = ROUTES.iter().filter(|route| !MACHINES.contains(route));
    for (method, path) in others.filter(|(_, path)| path.contains("{id}")) {
        let mut answers = Vec::new();
        for id in [theirs.as_str(), none.as_str(), "ags-x", "%2e%2e", "%ff"] {
            answers.push(world.call(STRANGER, method, &filled(path, id)).await);
        }
        for answer in &answers {
            assert_eq!(
                (answer.status, &answer.body),
                (404, &answers[0].body),
                "{method} {path}"
            );
            assert_eq!(answer.header("content-type"), "application/problem+json");
        }
        asked += 1;
    }
    assert_eq!(asked, 45);
    let foreign = json!({"workspaceId": "demo", "kind": "interactive", "agent": {"profile": "demo"}, "prompt": "p"});
    let created = world.post(STRANGER, "/v1/agent-sessions", &foreign).await;
    let listed = world
        .get(STRANGER, "/v1/agent-sessions?workspaceId=demo")
        .await;
    let revoked = world
        .post(STRANGER, "/v1/revocations", &json!({"workspaceId": "demo"}))
        .await;
    let session = json!({"workspaceId": "other", "sessionId": theirs});
    let revoked_session = world.post(STRANGER, "/v1/revocations", &session).await;
    let missing = world.get(STRANGER, &path(&none, "")).await;
    for answer in [created, listed, revoked, revoked_session] {
        assert_eq!(answer.body, missing.body);
    }
    assert_eq!(world.sql("SELECT count(*) FROM sessions"), "1");
    // who acts everywhere sees it
    world.get(EVERYWHERE, &path(&theirs, "")).await.ok(200);
}

#[tokio::test]
async fn what_is_no_route_is_a_problem_too() {
    let world = World::new().await;
    world.get(VIEWER, "/v1/nothing").await.refused("not_found");
    world.get("", "/").await.refused("not_found");
    let answer = world.call(ADMIN, "PUT", "/v1/agent-sessions").await;
    answer.refused("method_not_allowed");
    let document = world.get("", "/openapi.json").await.ok(200);
    assert_eq!(document["info"]["title"], "bex-api");
}

#[tokio::test]
async fn a_callers_request_id_is_kept_when_it_is_sane() {
    let world = World::new().await;
    let ask = async |id: &str| {
        let request = world
            .request(VIEWER, "GET", "/v1/agent-sessions")
            .header("x-request-id", id);
        let answer = world
            .send(request.body(http_body_util::Full::default()).unwrap())
            .await;
        answer.header("x-request-id").to_owned()
    };
    assert_eq!(ask("abc-1").await, "abc-1");
    assert!(ask(&"x".repeat(65)).await.starts_with("req-"));
}

#[tokio::test]
async fn http2_without_tls_is_spoken_too() {
    use http_body_util::{BodyExt, Full};
    let world = World::new().await;
    let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
        .http2_only(true)
        .build_http::<Full<bytes::Bytes>>();
    let request = world
        .request(VIEWER, "GET", "/v1/agent-sessions")
        .body(Full::default())
        .unwrap();
    let response = client.request(request).await.unwrap();
    assert_eq!(
        (response.version(), response.status().as_u16()),
        (http::Version::HTTP_2, 200)
    );
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(&body[..], br#"{"items":[]}"#);
}

#[tokio::test]
async fn a_revocation_is_recorded_announced_and_audited() {
    let world = World::new().await;
    let session = world.create().await;
    let body = json!({"workspaceId": "demo", "subject": "u1", "sessionId": session});
    assert_eq!(
        world.post(ADMIN, "/v1/revocations", &body).await.ok(201),
        body
    );
    world
        .post(ADMIN, "/v1/revocations", &json!({"workspaceId": "demo"}))
        .await
        .ok(201);
    world
        .post(
            ADMIN,
            "/v1/revocations",
            &json!({"workspaceId": "demo", "sub": "x"}),
        )
        .await
        .refused("unknown_field");
    world
        .post(
            ADMIN,
            "/v1/revocations",
            &json!({"workspaceId": "demo", "subject": ""}),
        )
        .await
        .refused("invalid_request");
    let none = json!({"workspaceId": "demo", "sessionId": SessionId::random()});
    world
        .post(ADMIN, "/v1/revocations", &none)
        .await
        .refused("not_found");
    assert_eq!(
        world.sql("SELECT workspace_id, subject, session_id, created_by FROM revocations ORDER BY id LIMIT 1"),
        format!("demo|u1|{session}|svc:admin")
    );
    assert_eq!(world.sql("SELECT count(*) FROM revocations"), "2");
    assert_eq!(
        world
            .sql("SELECT count(*) FROM changes WHERE channel = 'bex_revoked' AND payload = 'demo'"),
        "2"
    );
    assert_eq!(
        world.sql("SELECT count(*) FROM audit_events WHERE action = 'revocation.create'"),
        "2"
    );
}
