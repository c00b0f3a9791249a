//! What other workspaces can tell: nothing.

use super::*;

#[tokio::test]
async fn two_workspaces_use_the_same_ids_and_never_meet() {
    let world = World::new().await;
    let id = ExecutionId::random();
    let path = execution(&id, "");
    for (token, status) in [(OPERATOR, "running"), (STRANGER, "failed")] {
        let body = json!({"status": status, "workflowId": "w", "workflowVersion": "1"});
        let made = world.put(token, &path, &body).await.ok(201);
        assert_eq!(made["status"], status);
        let node = json!({"ordinal": 0, "outputs": token});
        world
            .put(token, &execution(&id, "/nodes/n"), &node)
            .await
            .ok(201);
        let version = json!({"of": token}).to_string();
        world
            .put_text(token, "/v1/workflows/w/versions/1", &version)
            .await
            .ok(201);
        let mut one = finding("f");
        one["executionId"] = json!(id);
        one["decision"] = json!(token);
        let mut used = entry("e");
        used["executionId"] = json!(id);
        for (path, body) in [
            ("/v1/findings", json!({"findings": [one]})),
            ("/v1/usage", json!({"entries": [used]})),
        ] {
            assert_eq!(world.post(token, path, &body).await.ok(200)["recorded"], 1);
        }
    }
    for (token, mine, theirs) in [(OPERATOR, "demo", "other"), (STRANGER, "other", "demo")] {
        let told = world.get(token, &path).await.ok(200);
        assert_eq!(
            (
                &told["workspaceId"],
                &told["workflow"]["body"],
                &told["ledger"]["entries"]
            ),
            (&json!(mine), &json!({"of": token}), &json!(1))
        );
        for list in [
            "/v1/executions".to_owned(),
            execution(&id, "/nodes"),
            format!("/v1/findings?executionId={id}"),
            "/v1/findings".to_owned(),
            "/v1/usage".to_owned(),
            "/v1/workflows/w/versions".to_owned(),
        ] {
            let page = world.get(token, &list).await.ok(200);
            assert_eq!(page["items"].as_array().unwrap().len(), 1, "{list}");
            let separator = if list.contains('?') { '&' } else { '?' };
            let foreign = format!("{list}{separator}workspaceId={theirs}");
            world.get(token, &foreign).await.refused("not_found");
        }
    }
    // who acts everywhere says where
    world
        .get(EVERYWHERE, &path)
        .await
        .refused("invalid_request");
    let there = world
        .get(EVERYWHERE, &format!("{path}?workspaceId=other"))
        .await;
    assert_eq!(there.ok(200)["status"], "failed");
    // and a deletion is one workspace's
    world.call(ADMIN, "DELETE", &path).await.ok(204);
    world.get(OPERATOR, &path).await.refused("not_found");
    world.get(STRANGER, &path).await.ok(200);
    assert_eq!(
        world.sql("SELECT count(*) FROM findings UNION ALL SELECT count(*) FROM usage_ledger UNION ALL SELECT count(*) FROM execution_nodes"),
        "1\n1\n1"
    );
}

#[tokio::test]
async fn anothers_ids_answer_as_none_byte_for_byte() {
    let world = World::new().await;
    let theirs = world.execution().await;
    let their_session = world.create().await;
    let none = ExecutionId::random();
    let no_session = bex_proto::SessionId::random();
    world
        .put_text(OPERATOR, "/v1/exec-specs/known/versions/1", "{}")
        .await
        .ok(201);
    let about = |id: &ExecutionId| {
        let mut one = finding("f");
        one["executionId"] = json!(id);
        json!({"findings": [one]})
    };
    let used = |field: &str, id: &str| {
        let mut one = entry("e");
        one[field] = json!(id);
        json!({"entries": [one]})
    };
    let naming =
        |session: &bex_proto::SessionId| json!({"status": "running", "sessions": [session]});
    let node = json!({"ordinal": 0});
    let mine = ExecutionId::random();
    let pairs = [
        (
            world.get(STRANGER, &execution(&theirs, "")).await,
            world.get(STRANGER, &execution(&none, "")).await,
        ),
        (
            world
                .call(STRANGER, "DELETE", &execution(&theirs, ""))
                .await,
            world.call(STRANGER, "DELETE", &execution(&none, "")).await,
        ),
        (
            world.get(STRANGER, &execution(&theirs, "/nodes")).await,
            world.get(STRANGER, &execution(&none, "/nodes")).await,
        ),
        (
            world
                .put(STRANGER, &execution(&theirs, "/nodes/n"), &node)
                .await,
            world
                .put(STRANGER, &execution(&none, "/nodes/n"), &node)
                .await,
        ),
        (
            world.post(STRANGER, "/v1/findings", &about(&theirs)).await,
            world.post(STRANGER, "/v1/findings", &about(&none)).await,
        ),
        (
            world
                .post(STRANGER, "/v1/usage", &used("executionId", theirs.as_str()))
                .await,
            world
                .post(STRANGER, "/v1/usage", &used("executionId", none.as_str()))
                .await,
        ),
        (
            world
                .post(
                    STRANGER,
                    "/v1/usage",
                    &used("sessionId", their_session.as_str()),
                )
                .await,
            world
                .post(
                    STRANGER,
                    "/v1/usage",
                    &used("sessionId", no_session.as_str()),
                )
                .await,
        ),
        (
            world
                .put(STRANGER, &execution(&mine, ""), &naming(&their_session))
                .await,
            world
                .put(STRANGER, &execution(&mine, ""), &naming(&no_session))
                .await,
        ),
        (
            world
                .get(STRANGER, &format!("/v1/findings?executionId={theirs}"))
                .await,
            world
                .get(STRANGER, &format!("/v1/findings?executionId={none}"))
                .await,
        ),
        (
            world.get(STRANGER, "/v1/exec-specs/known/versions/1").await,
            world.get(STRANGER, "/v1/exec-specs/none/versions/1").await,
        ),
        (
            world.get(STRANGER, "/v1/exec-specs/known/versions").await,
            world.get(STRANGER, "/v1/exec-specs/none/versions").await,
        ),
    ];
    for (n, (known, unknown)) in pairs.iter().enumerate() {
        assert_eq!(
            (known.status, &known.body),
            (404, &unknown.body),
            "pair {n}"
        );
    }
    assert_eq!(
        world.sql("SELECT count(*) FROM executions UNION ALL SELECT count(*) FROM findings UNION ALL SELECT count(*) FROM usage_ledger"),
        "1\n0\n0"
    );
}

#[tokio::test]
async fn nothing_is_recorded_of_another_workspaces_run() {
    let world = World::new().await;
    let session = world.create().await;
    let turns = world.get(VIEWER, &path(&session, "/turns")).await.ok(200);
    let run = &turns["turns"][0]["runId"];
    let (mut one, mut used) = (finding("f"), entry("e"));
    one["runId"] = run.clone();
    used["runId"] = run.clone();
    let bodies = [
        ("/v1/findings", json!({"findings": [one]})),
        ("/v1/usage", json!({"entries": [used]})),
    ];
    for (path, body) in &bodies {
        let refused = world.post(STRANGER, path, body).await;
        refused.refused("not_found");
        assert_eq!(
            world.post(OPERATOR, path, body).await.ok(200)["recorded"],
            1
        );
    }
    assert_eq!(
        world.sql(
            "SELECT workspace_id FROM findings UNION ALL SELECT workspace_id FROM usage_ledger"
        ),
        "demo\ndemo"
    );
}
